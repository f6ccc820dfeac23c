"""The vectors of texts by one embedder, kept in an SQLite file, and exact search by cosine."""

from __future__ import annotations

import hashlib
import logging
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from typing import Any, Self

import numpy as np

from relquery.arrays import Float32s
from relquery.errors import IndexWarning, MissingExtraError, warn
from relquery.retrieval.embedder import Embedder, Part, rounded, unit_parts
from relquery.retrieval.files import file_name
from relquery.retrieval.index import Found, Index, best

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
            stored = {row[0]: row[1] for row in rows}
            places = [index for index, digest in enumerate(some, start) if digest in stored]
            if places:
                vectors = np.frombuffer(
                    b"".join(stored[digests[place]] for place in places), np.float32
                )
                yield places, vectors.reshape(len(places), -1)

    def put(self, digests: Sequence[bytes], vectors: Float32s) -> None:
        """Store vectors, at once and for good. They are kept in memory if they cannot be written,
        and written when that is possible again. Issues IndexWarning.
        """
        self.dimensions = vectors.shape[1]
        data = [vector.tobytes() for vector in vectors]
        rows = [
            (key, vector, _checksum(key, vector)) for key, vector in zip(digests, data, strict=True)
        ]
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


_MOST_AT_HAND = 1 << 15  # texts
_DIGEST = 16  # bytes


@dataclass(slots=True)
class KnownVectors:
    """keeps: whether vectors are stored; not worth it if they are made as fast as they are read.
    folder: where; None for the time of this object.

    A statement asks for the same texts many times, so recent vectors are also cached in memory.
    """

    embedder: Embedder
    folder: Path | None = None
    keeps: bool = True
    _rows: dict[str, int] = field(default_factory=dict)
    _vectors: Float32s = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    _store: VectorStore | None = None
    _dimensions: int | None = None
    _lock: RLock = field(default_factory=RLock)  # DuckDB may ask from several threads

    def of(self, texts: Sequence[str]) -> Float32s:
        """(texts, dimensions), of length 1, or 0 for a text without a vector. Raises what the
        embedder raises; what came before it failed is kept.
        """
        with self._lock:
            new = [text for text in dict.fromkeys(texts) if text not in self._rows]
            if len(self._rows) + len(new) > _MOST_AT_HAND:
                self._rows.clear()
                new = list(dict.fromkeys(texts))
                self._vectors = self._vectors[:0]
            if new:
                vectors = self.of_distinct(new)
                self._vectors = np.concatenate((self._vectors, vectors)) if self._rows else vectors
                self._rows.update({text: len(self._rows) + index for index, text in enumerate(new)})
            return self._vectors[[self._rows[text] for text in texts]]

    def of_distinct(self, texts: Sequence[str]) -> Float32s:
        """The same for distinct texts. Their vectors are not cached in memory."""
        with self._lock:
            computed: Float32s | None = None
            for places, vectors in self._parts(texts) if texts else ():
                self._dimensions = vectors.shape[1]
                if computed is None:
                    computed = np.zeros((len(texts), self._dimensions), np.float32)
                computed[places] = vectors
            return (
                np.zeros((0, self._dimensions or 0), np.float32) if computed is None else computed
            )

    def close(self) -> None:
        """Close the file of the store. It is opened again if it is needed."""
        with self._lock:
            if self._store is not None:
                self._store.close()
                self._store = None

    def _parts(self, texts: Sequence[str]) -> Iterator[Part]:
        """The vectors of texts, first the stored ones. New ones are stored as they come."""
        if not self.keeps:
            yield from unit_parts(self.embedder, texts, self._dimensions)
            return
        store = self._opened()
        digests = [_digest(text) for text in texts]
        is_new = np.ones(len(texts), np.bool_)
        for part in store.get(digests):
            is_new[part[0]] = False
            yield part
        new = np.flatnonzero(is_new)
        if len(new) < len(texts):
            texts = [text for text, is_wanted in zip(texts, is_new, strict=True) if is_wanted]
        for places, vectors in unit_parts(self.embedder, texts, self._dimensions) if texts else ():
            numbers = new[places].tolist()
            store.put([digests[place] for place in numbers], vectors)
            yield numbers, vectors

    def _opened(self) -> VectorStore:
        """The store. Opened late: a name may be known only once the embedder is loaded."""
        if self._store is None:
            self._store = VectorStore.open(self.folder, self.embedder.name)
            self._dimensions = self._store.dimensions
        return self._store


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST).digest()


_AT_ONCE = 4096  # questions whose vectors are in memory at one time


@dataclass(frozen=True, slots=True)
class VectorIndex(Index):
    """known: gives the vectors of questions. vectors: (texts, dimensions), of length 1, in the
    memory of `flat`: faiss's index, which compares a question with each of them.
    """

    known: KnownVectors
    vectors: Float32s
    flat: Any

    def search(self, questions: Sequence[str], limit: int) -> Iterator[Found]:
        """See Index. As many texts as there are, up to the limit, however far they are.

        Of texts that tie for the last place, any may be found.
        """
        limit = min(limit, len(self.vectors))
        for start in range(0, len(questions), _AT_ONCE):
            some = questions[start : start + _AT_ONCE]
            if not limit:
                yield from (Found(np.empty(0, np.int64), np.empty(0, np.float32)) for _ in some)
                continue
            scores, texts = self.flat.search(self.known.of(some), limit)
            yield from (best(*row, limit) for row in zip(texts, rounded(scores), strict=True))


@dataclass(frozen=True, slots=True)
class ByVectors:
    """Indexes of vectors, of which only those that are not known are made."""

    known: KnownVectors

    def index(self, texts: Sequence[str]) -> Index:
        """Index texts. Raises what the embedder raises, and MissingExtraError without faiss."""
        faiss = _faiss()
        vectors = self.known.of_distinct(texts)
        flat = faiss.IndexFlatIP(vectors.shape[1])
        flat.add(vectors)
        shared = faiss.rev_swig_ptr(flat.get_xb(), vectors.size).reshape(vectors.shape)
        return VectorIndex(self.known, shared if vectors.size else vectors, flat)


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError("Search by vectors", "retrieval") from error
    return faiss
