"""Claims of a task's attempts on what they ask, where Spark runs two of them at once.

Each attempt writes what it does to a file of its own in the ledger's folder, since a folder that
many machines share may have no locks. It first says what it wants, then reads what others want, and
asks what nobody else does. As each writes before it reads, no two ask the same unless one waits for
the other in vain. Where both want an input, and nobody has taken it, the first attempt asks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SUFFIX = ".claims"
_WANTS, _TAKES, _GIVES_BACK, _ENDS = "?", "!", "-", "."


@dataclass(slots=True)
class _Other:
    """Another attempt."""

    attempt: int
    read: int = 0
    """Bytes of its file that have been read."""
    wanted: set[bytes] = field(default_factory=set)
    taken: set[bytes] = field(default_factory=set)


@dataclass(slots=True)
class AttemptClaims:
    """The claims of one attempt of a task on keys of inputs."""

    folder: Path
    task: str
    """Begins the names of the files of all its attempts."""
    attempt: int
    _others: dict[Path, _Other] = field(default_factory=dict)
    _file: int | None = None

    def take(self, keys: Sequence[bytes]) -> set[bytes]:
        """Claim keys. Returns those that no other attempt has claimed: this one is to ask them."""
        self._write(_WANTS, keys)
        self._read()
        others = self._others.values()
        mine = [key for key in keys if not any(key in other.wanted for other in others)]
        self._write(_TAKES, mine)
        return set(mine)

    def free(self, keys: Iterable[bytes]) -> set[bytes]:
        """Those of claimed keys that no other attempt asks or is to ask."""
        self._read()
        others = self._others.values()
        return {
            key
            for key in keys
            if not any(
                key in other.taken or (key in other.wanted and other.attempt < self.attempt)
                for other in others
            )
        }

    def give_back(self, key: bytes) -> None:
        """Let others ask a key, as its answer is not kept."""
        self._write(_GIVES_BACK, [key])

    def close(self) -> None:
        """Let others ask all that has no answer."""
        if self._file is not None:
            self._write(_ENDS, [b""])
            os.close(self._file)
            self._file = None

    def _path(self, attempt: object) -> Path:
        return self.folder / f"{self.task}-{attempt}{SUFFIX}"

    def _write(self, what: str, keys: Iterable[bytes]) -> None:
        if self._file is None:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            self._file = os.open(self._path(self.attempt), flags, 0o600)
        os.write(self._file, "".join(f"{what}{key.hex()}\n" for key in keys).encode())
        os.fsync(self._file)

    def _read(self) -> None:
        """Take in what other attempts have written since the last time."""
        own = self._path(self.attempt)
        for path in self.folder.glob(f"{self.task}-*{SUFFIX}"):
            if path == own:
                continue
            number = int(path.name.removeprefix(f"{self.task}-").removesuffix(SUFFIX))
            other = self._others.setdefault(path, _Other(number))
            with path.open("rb") as file:
                file.seek(other.read)
                content = file.read()
            whole = content[: content.rfind(b"\n") + 1]
            other.read += len(whole)
            for line in whole.decode().splitlines():
                _note(other, line[0], bytes.fromhex(line[1:]))


def _note(other: _Other, what: str, key: bytes) -> None:
    if what == _ENDS:
        other.wanted.clear()
        other.taken.clear()
    elif what == _GIVES_BACK:
        other.wanted.discard(key)
        other.taken.discard(key)
    else:
        (other.wanted if what == _WANTS else other.taken).add(key)


def remove_claims(folder: Path, run: str) -> None:
    """Remove the files of all tasks whose names begin so."""
    for path in folder.glob(f"{run}-*{SUFFIX}"):
        path.unlink(missing_ok=True)
