"""JSON objects in a folder, one file each. Their names are made here, never by clients."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_LOG = logging.getLogger(__name__)


def private(path: str, flags: int) -> int:
    """Opens a file for `open`, which only its owner may read if it is made."""
    return os.open(path, flags, 0o600)


class Folder:
    """Objects by id. Its methods wait for the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Prompts and answers are nobody else's business, also where the folder was there before.
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)

    def all(self) -> Iterator[dict[str, Any]]:
        """All objects; a file that is damaged is passed over, and what a killed process has begun
        to write is removed."""
        for path in self.path.glob("*.new"):
            path.unlink()
        for path in sorted(self.path.glob("*.json")):
            try:
                found = json.loads(path.read_text(encoding="utf-8"))
            except ValueError:
                _LOG.error("%s is damaged and is passed over", path)
            else:
                yield found

    def save(self, name: str, value: dict[str, Any]) -> None:
        """Write an object, whole or not at all."""
        path = self.path / f"{name}.json"
        beside = path.with_suffix(".new")
        with open(beside, "w", encoding="utf-8", opener=private) as file:
            json.dump(value, file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)

    def delete(self, name: str) -> None:
        """Remove an object, if there is one."""
        (self.path / f"{name}.json").unlink(missing_ok=True)
