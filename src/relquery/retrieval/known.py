"""The vectors of texts by one embedder. What was embedded once is not embedded again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock

import numpy as np

from relquery.arrays import Float32s
from relquery.retrieval.embedder import Embedder, Part, unit_parts
from relquery.retrieval.store import VectorStore

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
                found = self.of_distinct(new)
                self._vectors = np.concatenate((self._vectors, found)) if self._rows else found
                self._rows.update({text: len(self._rows) + at for at, text in enumerate(new)})
            return self._vectors[[self._rows[text] for text in texts]]

    def of_distinct(self, texts: Sequence[str]) -> Float32s:
        """The same for distinct texts. Their vectors are not cached in memory."""
        with self._lock:
            found: Float32s | None = None
            for places, vectors in self._parts(texts) if texts else ():
                self._dimensions = vectors.shape[1]
                if found is None:
                    found = np.zeros((len(texts), self._dimensions), np.float32)
                found[places] = vectors
            return np.zeros((0, self._dimensions or 0), np.float32) if found is None else found

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
            texts = [text for text, one in zip(texts, is_new, strict=True) if one]
        for places, vectors in unit_parts(self.embedder, texts, self._dimensions) if texts else ():
            at = new[places].tolist()
            store.put([digests[one] for one in at], vectors)
            yield at, vectors

    def _opened(self) -> VectorStore:
        """The store. Opened late: a name may be known only once the embedder is loaded."""
        if self._store is None:
            self._store = VectorStore.open(self.folder, self.embedder.name)
            self._dimensions = self._store.dimensions
        return self._store


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST).digest()
