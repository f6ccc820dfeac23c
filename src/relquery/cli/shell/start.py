"""The shell: what a person types is read, kept for later sessions, and run until they leave."""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from prompt_toolkit.output import Output, create_output
from prompt_toolkit.styles import Style
from pygments.lexers.sql import SqlLexer  # type: ignore[import-untyped]
from rich.console import Console

from relquery.cli.interrupt import interruptible
from relquery.cli.shell.commands import COMMANDS, run_command
from relquery.cli.shell.completion import ShellCompleter, entries, is_whole
from relquery.cli.shell.session import Screen, Session
from relquery.cli.sql.options import ConnectionOptions
from relquery.cli.sql.output import Format, explanation_view, print_errors
from relquery.cli.terminal import errors_console, progress, say, shown_warnings
from relquery.errors import PartialResultWarning, RelqueryError, UnknownTableError
from relquery.report import Report
from relquery.sql.binder.statement import Calling, read_statement
from relquery.sql.explain.explanation import SqlExplanation
from relquery.sql.parser.parameters import read_parameters
from relquery.sql.parser.statements import is_explain, split
from relquery.sql.result import Result

_PROMPT = "relquery> "
_CONTINUED = "     ...> "


class _File(FileHistory):
    """A history that goes on if its file cannot be written, for example on a full disk."""

    def store_string(self, string: str) -> None:
        """See History."""
        with suppress(OSError):
            super().store_string(string)


def open_history() -> History:
    """The history in the user's state folder, in a file of the user's own; else one for this
    session alone."""
    given = Path(os.environ.get("XDG_STATE_HOME", ""))
    try:
        folder = given if given.is_absolute() else Path.home() / ".local" / "state"
        path = folder / "relquery" / "history"
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        with path.open("a+b") as file:
            path.chmod(0o600)
            file.seek(0)
            file.read(1)
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home folder
        say(f"The history is not kept: {error}. Set XDG_STATE_HOME to a folder that can be used.")
        return InMemoryHistory()
    return _File(str(path))


@dataclass(frozen=True, slots=True)
class LineReader:
    """A reader of a person's input. Ctrl-C raises KeyboardInterrupt, Ctrl-D EOFError."""

    read: Callable[[], str]
    """Reads one or more complete entries."""
    answer: Callable[[str], str]
    """Reads a line that answers a question."""

    def is_yes(self, question: str) -> bool:
        """Ask a person; Ctrl-C and Ctrl-D mean no."""
        try:
            return self.answer(question).strip().lower() in ("y", "yes")
        except (KeyboardInterrupt, EOFError):
            return False


def prompt_reader(
    history: History, completer: Completer, output: Output | None = None
) -> LineReader:
    """A reader with history, completion and colours. output: None for standard output."""
    session = PromptSession[str](
        [("class:prompt", _PROMPT)],
        multiline=True,
        prompt_continuation=[("class:continued", _CONTINUED)],
        history=history,
        completer=completer,
        complete_while_typing=False,
        lexer=PygmentsLexer(SqlLexer),
        style=Style.from_dict({"prompt": "bold", "continued": "ansibrightblack"}),
        key_bindings=_bindings(),
        output=output,
    )
    return LineReader(session.prompt, PromptSession[str](output=output).prompt)


def line_reader(line: Callable[[str], str] = input) -> LineReader:
    """A reader of lines, for terminals that cannot move the cursor."""

    def read() -> str:
        text = line(_PROMPT)
        while not is_whole(text):
            text = f"{text}\n{line(_CONTINUED)}"
        return text

    return LineReader(read, line)


def open_reader(completer: Completer, *, keeps_history: bool) -> LineReader:
    """The reader that fits the terminal of this process."""
    if os.environ.get("TERM", "").lower() in ("dumb", "unknown"):
        return line_reader()
    # If results go to a file, the person still sees what they type.
    output = None if sys.stdout.isatty() else create_output(sys.stderr)
    return prompt_reader(open_history() if keeps_history else InMemoryHistory(), completer, output)


def _bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("enter", filter=has_focus(DEFAULT_BUFFER))
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        completing = buffer.complete_state
        if completing is not None and completing.current_completion is not None:
            buffer.complete_state = None
        elif is_whole(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return bindings


PATIENCE = 1.0
"""Seconds in which pressing Ctrl-C again has no further effect."""


def run_statement(session: Session, text: str) -> None:
    """Run a statement. Raises RelqueryError.

    Ctrl-C ends it, and drops what was to run next.
    """
    if session.connection.database.is_ending:
        session.screen.say("DuckDB is still ending the statement before. Ctrl-C stops waiting.")
        session.connection.database.await_end()
    if is_explain(text):
        _show_explanation(session, text)
    elif not _is_agreed(session, text):
        session.stop("Nothing was sent.")
    else:
        _run(session, text)


def _run(session: Session, text: str) -> None:
    connection, stored = session.connection, session.stored
    start = connection.clock()
    try:
        with (
            shown_warnings(PartialResultWarning),
            progress(waiting=connection.waiting) as advance,
            interruptible(PATIENCE),
        ):
            result = connection.sql(text, progress=advance, **session.setup.sampling)
    except KeyboardInterrupt:
        kept = session.stored - stored
        answers = "1 new answer is" if kept == 1 else f"{kept:,} new answers are"
        more = f" {answers} kept, so the same statement continues from there." if kept else ""
        session.stop(f"Interrupted.{more}")
        return
    seconds = connection.clock() - start
    if result.report.stages:
        session.last = result
    session.screen.show(result)
    print_errors(result, "  .errors shows all")
    if session.is_timed:
        session.screen.say(f"{seconds:.2f} s")


def _show_explanation(session: Session, text: str) -> None:
    explanation = session.connection.explain(text, **session.setup.sampling)
    if session.screen.form is Format.TABLE:
        session.screen.draw(explanation_view(explanation, Console().width))
    else:
        session.screen.show(Result(explanation.arrow(), (), Report()))


def _is_agreed(session: Session, text: str) -> bool:
    """Whether a statement may be sent. Above the session's limit, the person is asked."""
    if session.limit is None:
        return True
    database = session.connection.database
    (statement,) = split(text, database)
    parameters = read_parameters(None, [statement], database)
    if not isinstance(read_statement(statement, database.kept, parameters), Calling):
        return True
    # What follows EXPLAIN ANALYZE, which runs it.
    explanation = session.connection.explain(statement.query, **session.setup.sampling)
    counts = [call.calls for call in explanation.calls]
    total = None if None in counts else sum(count or 0 for count in counts)
    if total is not None and total <= session.limit:
        return True
    console = errors_console()
    console.print(explanation_view(explanation, console.width))
    return session.ask(f"{_question(explanation, total)} [y/N] ")


def _question(explanation: SqlExplanation, total: int | None) -> str:
    if total is None:
        return "Send an unknown number of calls?"
    bound = "" if all(call.counts == "exact" for call in explanation.calls) else "at most "
    return f"Send {bound}{total:,} {'call' if total == 1 else 'calls'}?"


def open_shell(setup: ConnectionOptions, form: Format, *, keep_history: bool) -> None:
    """Run a shell in this process's terminal. Raises RelqueryError if it cannot be opened."""
    for stream in (sys.stdout, sys.stderr):  # characters that a terminal lacks are written out
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    session = Session.open(setup, Screen(form), lambda question: False)
    try:
        reader = open_reader(completer(session), keeps_history=keep_history)
        session.ask = reader.is_yes
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
        name: None if command.words is None else partial(command.words, session)
        for name, command in COMMANDS.items()
    }
    return ShellCompleter(lambda: session.known, words)


def converse(session: Session, reader: LineReader) -> None:
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
        _run_entry(session, session.pending.pop(0))


def _run_entry(session: Session, entry: str) -> None:
    try:
        with interruptible(PATIENCE):
            (run_command if entry.startswith(".") else run_statement)(session, entry)
    except KeyboardInterrupt:
        session.stop("Interrupted.")
    except BrokenPipeError:  # nobody reads what the shell writes
        raise
    except (RelqueryError, OSError) as error:
        is_unknown = isinstance(error, UnknownTableError)
        remedy = " In the shell: .register NAME=FILE." if is_unknown else ""
        _show_error(session, f"Error: {error}{remedy}")
    except Exception as error:  # a mistake of ours must not cost the session its answers
        session.screen.say(traceback.format_exc())
        _show_error(session, f"Error in relquery itself, please report it: {error}")


def _show_error(session: Session, text: str) -> None:
    session.screen.say(text, "red")
    if session.pending:
        session.stop("")
