"""Indexes in a folder, one file each. A file that cannot be read is as good as none."""

from __future__ import annotations

import hashlib
import logging
import re
import tempfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from relquery.errors import ConfigError
from relquery.retrieval.index import Arrays

_LOG = logging.getLogger(__name__)
_STAMP = "stamp"
# What NumPy and zipfile raise for a file that is cut short or changed. RuntimeError: a flipped bit
# says that an entry is encrypted, or compressed by an unknown method.
_UNREADABLE = (
    EOFError, KeyError, OSError, RuntimeError, TypeError, ValueError, zipfile.BadZipFile,
    zlib.error,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stamp:
    """indexing: the name of the way in which texts were indexed. texts: their digest."""

    indexing: str
    texts: str


@dataclass(frozen=True, slots=True)
class Files:
    """A folder of indexes. Programs may use it at once: a file is replaced in one step."""

    folder: Path

    @classmethod
    def open(cls, folder: str | Path) -> Self:
        """Open or create a folder. Raises ConfigError if that fails."""
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"The folder {folder} for indexes cannot be used: {error.strerror}. Give a folder "
                "that you can write to."
            ) from error
        return cls(Path(folder))

    def load(self, name: str) -> tuple[Stamp, Arrays] | None:
        """What was saved under a name; None if no file can be read."""
        path = self._path(name)
        if not path.exists():
            return None
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
                arrays = {one: kept[one] for one in kept.files}
            *stamp, checksum = arrays.pop(_STAMP).tobytes().decode().split("\n")
            if checksum != _checksum(arrays):
                raise ValueError("its content has changed")
            return Stamp(*stamp), arrays
        except _UNREADABLE as error:
            _LOG.warning("The index %s is damaged and will be made again: %s", path, error)
            return None

    def save(self, name: str, stamp: Stamp, arrays: Arrays) -> None:
        """Write a file in one step. Raises ConfigError if that fails."""
        path = self._path(name)
        text = f"{stamp.indexing}\n{stamp.texts}\n{_checksum(arrays)}".encode()
        kept: dict[str, Any] = {_STAMP: np.frombuffer(text, np.uint8), **arrays}
        try:
            with tempfile.TemporaryDirectory(dir=self.folder, prefix=".new-") as folder:
                written = Path(folder) / path.name
                np.savez(written, **kept)
                written.replace(path)
        except OSError as error:
            raise ConfigError(
                f"The index of {name} cannot be written to {self.folder}: {error.strerror}. Give "
                "another folder, or none to keep indexes in memory."
            ) from error

    def _path(self, name: str) -> Path:
        readable = re.sub(r"\W+", "_", name, flags=re.ASCII)[:40]
        short = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
        return self.folder / f"{readable}-{short}.npz"


def _checksum(arrays: Arrays) -> str:
    """Of all arrays. The archive has sums of its own, but not of its directory."""
    whole = hashlib.blake2b(digest_size=16)
    for name, array in sorted(arrays.items()):
        whole.update(f"{name} {array.dtype} {array.shape}".encode())
        whole.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return whole.hexdigest()
