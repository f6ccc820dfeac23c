"""Indexes of words in a folder, one file each. A file that cannot be read is as good as none."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import tempfile
import zipfile
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from relquery.errors import ConfigError, IndexWarning, warn
from relquery.retrieval.index import Arrays

_LOG = logging.getLogger(__name__)
_STAMP = "stamp"
_MOST_OF_A_NAME = 8  # files: of databases that share a folder, and of texts as they were before
# What NumPy and zipfile raise for a file that is cut short or changed. RuntimeError: a flipped bit
# says that an entry is encrypted, or compressed by an unknown method.
_UNREADABLE = (
    EOFError, KeyError, OSError, RuntimeError, TypeError, ValueError, zipfile.BadZipFile,
    zlib.error,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stamp:
    """The identity of an index."""

    indexing: str
    """The name of the way in which texts were indexed."""
    texts: str
    """The digest of the texts."""


@dataclass(frozen=True, slots=True)
class IndexFiles:
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

    def load(self, name: str, stamp: Stamp) -> Arrays | None:
        """What was saved under a name and stamp; None if no file can be read."""
        path = self._path(name, stamp)
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
                arrays = {name: kept[name] for name in kept.files}
            *said, checksum = arrays.pop(_STAMP).tobytes().decode().split("\n")
            if checksum != _checksum(arrays):
                raise ValueError("its content has changed")
            with suppress(OSError):
                os.utime(path)  # it was used
            return arrays if Stamp(*said) == stamp else None
        except FileNotFoundError:
            return None
        except _UNREADABLE as error:
            is_access = isinstance(error, OSError) and error.errno is not None
            what = "cannot be read" if is_access else "is damaged"
            _LOG.warning("The index %s %s and will be made again: %s", path, what, error)
            return None

    def save(self, name: str, stamp: Stamp, arrays: Arrays) -> None:
        """Write a file in one step. Issues IndexWarning if that fails."""
        path = self._path(name, stamp)
        text = f"{stamp.indexing}\n{stamp.texts}\n{_checksum(arrays)}".encode()
        kept: dict[str, Any] = {_STAMP: np.frombuffer(text, np.uint8), **arrays}
        try:
            with tempfile.TemporaryDirectory(dir=self.folder, prefix=".new-") as folder:
                written = Path(folder) / path.name
                np.savez(written, **kept)
                written.replace(path)
        except OSError as error:
            warn(
                f"The index of {name} cannot be written to {self.folder}: {error.strerror}. It is "
                "in memory until the connection closes. Free disk space, or give another folder.",
                IndexWarning,
            )
        else:
            self._tidy(name)

    def _tidy(self, name: str) -> None:
        """Remove the files of a name that were not used for the longest time."""
        with suppress(OSError):  # another process may tidy, too
            paths = self.folder.glob(f"{file_name(name)}-*.npz")
            latest = sorted(paths, key=lambda path: path.stat().st_mtime_ns, reverse=True)
            for path in latest[_MOST_OF_A_NAME:]:
                path.unlink()

    def _path(self, name: str, stamp: Stamp) -> Path:
        """By the texts, too: several databases may share a folder."""
        return self.folder / f"{file_name(name)}-{_short(f'{stamp.indexing} {stamp.texts}')}.npz"


def file_name(name: str) -> str:
    """A readable name for a file, different for different names."""
    readable = re.sub(r"\W+", "_", name, flags=re.ASCII)[:40]
    return f"{readable}-{_short(name)}"


def _short(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def _checksum(arrays: Arrays) -> str:
    """Of all arrays. The archive has sums of its own, but not of its directory."""
    whole = hashlib.blake2b(digest_size=16)
    for name, array in sorted(arrays.items()):
        whole.update(f"{name} {array.dtype} {array.shape}".encode())
        whole.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return whole.hexdigest()
