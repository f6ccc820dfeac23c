"""Input of a person, read until it is complete and kept for later sessions."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
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

from relquery.cli.shell.completion import is_whole
from relquery.cli.terminal import say

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
