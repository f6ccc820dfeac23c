"""Opens the shell, and reads and runs entries until the person leaves."""

from __future__ import annotations

import io
import os
import sys
import traceback
from functools import partial
from importlib.metadata import version

from prompt_toolkit.history import History, InMemoryHistory

from relquery.cli.shell.commands import COMMANDS, run_command
from relquery.cli.shell.completion import ShellCompleter
from relquery.cli.shell.history import history_file, open_history
from relquery.cli.shell.reader import Reader, open_reader
from relquery.cli.shell.screen import Screen
from relquery.cli.shell.session import Session
from relquery.cli.shell.split import entries
from relquery.cli.shell.statements import PATIENCE, run_statement
from relquery.cli.sql.formats import Format
from relquery.cli.sql.setup import Setup
from relquery.cli.terminal.interrupt import interruptible
from relquery.errors import RelqueryError, UnknownTableError


def open_shell(setup: Setup, form: Format, *, keep_history: bool) -> None:
    """Run a shell in this process's terminal. Raises RelqueryError if it cannot be opened."""
    for stream in (sys.stdout, sys.stderr):  # characters that a terminal lacks are written out
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    session = Session.open(setup, Screen(form), lambda question: False)
    try:
        history = partial(_history, session, keep_history)
        reader = open_reader(history, completer(session))
        session.ask = partial(is_yes, reader)
        session.screen.say(
            f"relquery {version('relquery')}, model {session.model}. Statements end with ;. "
            ".help lists commands, Ctrl-D leaves."
        )
        converse(session, reader)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is left to flush
    finally:
        session.close()


def completer(session: Session) -> ShellCompleter:
    """A completer for the tables and commands of a session."""
    words = {
        name: None if one.words is None else partial(one.words, session)
        for name, one in COMMANDS.items()
    }
    return ShellCompleter(lambda: session.known, words)


def converse(session: Session, reader: Reader) -> None:
    """Read entries and run them, until the person leaves."""
    while not session.is_over:
        try:
            session.refresh()
            run_entries(session, reader.read())
        except KeyboardInterrupt:  # at the prompt: the line is dropped
            continue
        except EOFError:
            return


def run_entries(session: Session, text: str) -> None:
    """Run the entries of a text in order, until one fails or is interrupted."""
    session.reading.clear()
    session.pending[:] = entries(text).whole
    while session.pending and not session.is_over:
        entry = session.pending.pop(0)
        try:
            with interruptible(PATIENCE):
                (run_command if entry.startswith(".") else run_statement)(session, entry)
        except KeyboardInterrupt:
            session.stop("Interrupted.")
        except BrokenPipeError:
            if session.screen.path is None:
                raise
            said = f"{session.screen.path} is no longer being read. Results go to this terminal."
            session.screen.close()
            session.stop(said)
        except (RelqueryError, OSError) as error:
            remedy = (
                " In the shell: .register NAME=FILE."
                if isinstance(error, UnknownTableError)
                else ""
            )
            _show_error(session, f"Error: {error}{remedy}")
        except Exception as error:  # a mistake of ours must not cost the session its answers
            session.screen.say(traceback.format_exc())
            _show_error(session, f"Error in relquery itself, please report it: {error}")


def is_yes(reader: Reader, question: str) -> bool:
    """Ask a person; Ctrl-C and Ctrl-D mean no."""
    try:
        return reader.answer(question).strip().lower() in ("y", "yes")
    except (KeyboardInterrupt, EOFError):
        return False


def _show_error(session: Session, text: str) -> None:
    session.screen.say(text, "red")
    if session.pending:
        session.stop("")


def _history(session: Session, is_kept: bool) -> History:
    if not is_kept:
        return InMemoryHistory()
    try:
        return open_history(history_file(os.environ))
    except RuntimeError:
        session.screen.say("The history is not kept: there is no home folder. Set XDG_STATE_HOME.")
        return InMemoryHistory()
