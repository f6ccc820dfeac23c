"""Reads what a person types, until it is complete, and keeps it for later sessions."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output, create_output

from relquery.cli.shell.split import is_whole
from relquery.cli.shell.typing import STYLE, SqlLexer
from relquery.cli.terminal.show import say

_OWNER = 0o600
_OWNERS_FOLDER = 0o700


class _File(FileHistory):
    """A history that goes on if its file cannot be written, for example on a full disk."""

    def store_string(self, string: str) -> None:
        """See History."""
        with suppress(OSError):
            super().store_string(string)


def history_file(environment: Mapping[str, str], platform: str = sys.platform) -> Path:
    """The history file, in the user's state folder. Raises RuntimeError without a home folder."""
    given = Path(environment.get("XDG_STATE_HOME", ""))
    if given.is_absolute():
        folder = given
    elif platform == "win32":
        local = environment.get("LOCALAPPDATA")
        folder = Path(local) if local else Path.home() / "AppData" / "Local"
    elif platform == "darwin":
        folder = Path.home() / "Library" / "Application Support"
    else:
        folder = Path.home() / ".local" / "state"
    return folder / "relquery" / "history"


def open_history(path: Path | None) -> History:
    """The history in a file, which is created if needed. None: only for this session."""
    if path is None:
        return InMemoryHistory()
    try:
        path.parent.mkdir(_OWNERS_FOLDER, parents=True, exist_ok=True)
        with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, _OWNER), "a+b") as file:
            file.seek(0)
            file.read(1)
        path.chmod(_OWNER)
    except OSError as error:
        said = f"The history is not kept: {path} cannot be used ({error.strerror})."
        say(said)
        return InMemoryHistory()
    return _File(str(path))


_PROMPT = "relquery> "
_CONTINUED = "     ...> "


class Reader(Protocol):
    """Reads from a person. Ctrl-C raises KeyboardInterrupt, Ctrl-D EOFError."""

    def read(self) -> str:
        """Read one or more complete entries."""

    def answer(self, question: str) -> str:
        """Read a line that answers a question."""


class PromptReader:
    """A reader with history, completion and colours. output: None for standard output."""

    def __init__(
        self, history: History, completer: Completer, output: Output | None = None
    ) -> None:
        self._session = PromptSession[str](
            [("class:prompt", _PROMPT)],
            multiline=True,
            prompt_continuation=[("class:continued", _CONTINUED)],
            history=history,
            completer=completer,
            complete_while_typing=False,
            lexer=SqlLexer(),
            style=STYLE,
            key_bindings=_bindings(),
            output=output,
        )
        self._questions = PromptSession[str](output=output)

    def read(self) -> str:
        """See Reader."""
        return self._session.prompt()

    def answer(self, question: str) -> str:
        """See Reader."""
        return self._questions.prompt(question)


class LineReader:
    """Reads lines, for terminals that cannot move the cursor. line: reads one, like `input`."""

    def __init__(self, line: Callable[[str], str] = input) -> None:
        self._line = line

    def read(self) -> str:
        """See Reader."""
        text = self._line(_PROMPT)
        while not is_whole(text):
            text = f"{text}\n{self._line(_CONTINUED)}"
        return text

    def answer(self, question: str) -> str:
        """See Reader."""
        return self._line(question)


def open_reader(history: Callable[[], History], completer: Completer) -> Reader:
    """The reader that fits the terminal of this process."""
    if os.environ.get("TERM", "").lower() in ("dumb", "unknown"):
        return LineReader()
    # If results go to a file, the person still sees what they type.
    output = None if sys.stdout.isatty() else create_output(sys.stderr)
    return PromptReader(history(), completer, output)


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
