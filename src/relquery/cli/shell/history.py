"""What was typed in earlier sessions, in a file that only its owner can read."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from prompt_toolkit.history import FileHistory, History, InMemoryHistory

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
