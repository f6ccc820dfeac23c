"""Vectors in an SQLite file, one for each embedder, that several processes can use at once."""

from __future__ import annotations

import logging
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from relquery.arrays import Float32s
from relquery.errors import IndexWarning, warn
from relquery.retrieval.embedder import Part
from relquery.retrieval.files import file_name

_LOG = logging.getLogger(__name__)
# Not in write-ahead mode, which needs files of its own beside this one even to read.
_CREATE = (
    "PRAGMA page_size = 16384",  # a vector has some kB, and fits into one page
    "CREATE TABLE IF NOT EXISTS vectors "
    "(digest BLOB NOT NULL UNIQUE, vector BLOB NOT NULL, checksum INTEGER NOT NULL)",
)
_IN_MEMORY = "PRAGMA cache_size = -262144"  # kB; what has no file goes to a temporary one beyond
_SELECT = "SELECT digest, vector, checksum FROM vectors"
_INSERT = "INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)"
_BYTES = 4  # of a number
_LOOK_UP_AT_ONCE = 500
_BUSY_SECONDS = 60  # until a file that another process has locked is given up
# Beside those that say it: ERROR for a table of other columns, MISMATCH for values of other types.
_DAMAGED = (
    sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_CONSTRAINT,
)  # fmt: skip

Row = tuple[bytes, bytes, int]


@dataclass(slots=True)
class VectorStore:
    """Vectors by the digests of their texts.

    connection: closed and opened anew if the file is damaged. path: the file; None for a temporary
    one, of which SQLite keeps the most in memory. dimensions: of the vectors; None before the first
    one. unsaved: rows that could not be written, by digest. file: what was opened.
    """

    connection: Any
    path: Path | None
    dimensions: int | None = None
    unsaved: dict[bytes, Row] = field(default_factory=dict)
    file: os.stat_result | None = None

    @classmethod
    def open(cls, folder: Path | None, name: str) -> Self:
        """Open or create the vectors of an embedder. Issues IndexWarning if it is not possible."""
        store = cls(None, None if folder is None else folder / f"{file_name(name)}.vectors")
        problem = store._problem_of(store._connect) or store._problem_of(store._measure)
        if problem is not None:
            path, store.path = store.path, None
            store._connect()
            _warn(f"The vectors in {path} cannot be read: {problem}.")
        return store

    def get(self, digests: Sequence[bytes]) -> Iterator[Part]:
        """The places of the known ones, and their vectors, some at a time."""
        for start in range(0, len(digests), _LOOK_UP_AT_ONCE):
            some = digests[start : start + _LOOK_UP_AT_ONCE]
            rows = (row for row in self._rows(some) if _is_whole(row, self.dimensions))
            found = {row[0]: row[1] for row in rows}
            places = [at for at, digest in enumerate(some, start) if digest in found]
            if places:
                vectors = np.frombuffer(b"".join(found[digests[at]] for at in places), np.float32)
                yield places, vectors.reshape(len(places), -1)

    def put(self, digests: Sequence[bytes], vectors: Float32s) -> None:
        """Store vectors, at once and for good. They are kept in memory if they cannot be written,
        and written when that is possible again. Issues IndexWarning.
        """
        self.dimensions = vectors.shape[1]
        data = [vector.tobytes() for vector in vectors]
        rows = [(key, one, _checksum(key, one)) for key, one in zip(digests, data, strict=True)]
        problem = self._problem_of(lambda: self._insert(rows))
        was_well = not self.unsaved
        if problem is not None:
            self.unsaved.update((row[0], row) for row in rows)
            if was_well:
                _warn(f"Vectors cannot be written to {self.path or 'a temporary file'}: {problem}.")
        elif not was_well and self._problem_of(self._insert_unsaved) is None:
            self.unsaved.clear()

    def close(self) -> None:
        """Close the file."""
        self.connection.close()

    def _rows(self, digests: Sequence[bytes]) -> list[Row]:
        rows = [self.unsaved[digest] for digest in digests if digest in self.unsaved]
        marks = ", ".join("?" * len(digests))

        def read() -> None:
            rows.extend(self.connection.execute(f"{_SELECT} WHERE digest IN ({marks})", digests))

        problem = self._problem_of(read)
        if problem is not None:
            _warn(f"The vectors in {self.path or 'a temporary file'} cannot be read: {problem}.")
        return rows

    def _insert(self, rows: Iterable[Row]) -> None:
        if self.path is not None and not self._is_in_place():
            self._connect()
        with self.connection:
            self.connection.executemany(_INSERT, rows)

    def _insert_unsaved(self) -> None:
        self._insert(self.unsaved.values())

    def _measure(self) -> None:
        """Learn the dimensions from the first whole row."""
        for row in self.connection.execute(_SELECT):
            dimensions = len(row[1]) // _BYTES if isinstance(row[1], bytes) else 0
            if dimensions and _is_whole(row, dimensions):
                self.dimensions = dimensions
                return

    def _connect(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.connection = sqlite3.connect(
            self.path or "",
            timeout=_BUSY_SECONDS,
            isolation_level="IMMEDIATE",
            check_same_thread=False,
        )
        self.connection.text_factory = bytes  # of a value that became a text by damage
        if self.path is None:
            self.connection.execute(_IN_MEMORY)
        else:
            self.file = self.path.stat()
        self.connection.execute("PRAGMA synchronous = NORMAL")  # a damaged row would be noticed
        is_there = self.connection.execute("PRAGMA schema_version").fetchone()[0]
        for sql in () if is_there else _CREATE:
            self.connection.execute(sql)
        self.connection.execute(f"{_SELECT} LIMIT 0")  # fails for other columns

    def _problem_of(self, act: Callable[[], None]) -> Exception | None:
        """Why something cannot be done, not even with a new file in place of a damaged one."""
        try:
            try:
                act()
            except sqlite3.Error as error:
                if self.path is None or not _is_damage(error):
                    raise
                self._begin_anew(self.path, error)
                act()
        except (sqlite3.Error, OSError) as error:
            return error
        return None

    def _begin_anew(self, path: Path, error: sqlite3.Error) -> None:
        """Remove the file, unless another process has done it, and open a new one."""
        if self._is_in_place():
            _LOG.warning("The vectors in %s are damaged and will be made again: %s", path, error)
            path.unlink(missing_ok=True)
            path.with_name(f"{path.name}-journal").unlink(missing_ok=True)
        self._connect()

    def _is_in_place(self) -> bool:
        """Whether the file that was opened is the one that others see."""
        if self.file is None or self.path is None:
            return False
        try:
            return os.path.samestat(self.file, self.path.stat())
        except FileNotFoundError:
            return False


def _warn(problem: str) -> None:
    warn(
        f"{problem} Vectors stay in memory until the connection closes. Free disk space, or give "
        "another index folder; otherwise they will be made again.",
        IndexWarning,
    )


def _is_damage(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", None)  # None: of a wrong use, not of the file
    return code is not None and code & 0xFF in _DAMAGED


def _is_whole(row: Row, dimensions: int | None) -> bool:
    """Whether a row is as it was written, and as long as all. Damage may change types, too."""
    digest, vector, checksum = row
    return (
        isinstance(digest, bytes)
        and isinstance(vector, bytes)
        and dimensions is not None
        and len(vector) == _BYTES * dimensions
        and checksum == _checksum(digest, vector)
    )


def _checksum(digest: bytes, vector: bytes) -> int:
    return zlib.crc32(vector, zlib.crc32(digest))
