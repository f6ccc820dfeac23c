"""The distinct texts of columns with their indexes, kept in memory and in a folder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import overload

import numpy as np
import pyarrow as pa

from relquery.retrieval.embedder import Embedder, Trigrams
from relquery.retrieval.files import IndexFiles, Stamp
from relquery.retrieval.index import Found, Index, Tfidf
from relquery.retrieval.vectors import ByVectors, KnownVectors

_AT_ONCE = 1 << 14  # texts that are Python strings at one time


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """Indexed texts."""

    texts: pa.Array
    """The texts: distinct, without NULL, in the order of first appearance."""
    index: Index
    """The index over them."""

    def search(self, questions: Sequence[str], limit: int) -> Iterator[Found]:
        """Up to `limit` texts for each question, best first."""
        return self.index.search(questions, min(limit, max(len(self.texts), 1)))


class Strings(Sequence[str]):
    """An Arrow array of texts as a sequence of Python strings, made some at a time."""

    def __init__(self, texts: pa.Array) -> None:
        self._texts = texts

    def __len__(self) -> int:
        return len(self._texts)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: int | slice) -> str | list[str]:
        text = self._texts[at]
        texts: str | list[str] = text.to_pylist() if isinstance(at, slice) else text.as_py()
        return texts

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _AT_ONCE):
            yield from self[start : start + _AT_ONCE]


def distinct_texts(column: pa.ChunkedArray) -> pa.Array:
    """The texts of a column that a corpus has: equal ones once, no NULL and nothing empty."""
    import pyarrow.compute as pc

    texts = column.cast(pa.large_string()).drop_null()
    unique = texts.unique()
    return unique.filter(pc.not_equal(unique, ""))


def digest(texts: pa.Array) -> str:
    """A hash of texts and their order."""
    whole = hashlib.blake2b(digest_size=16)
    _, ends, data = texts.buffers()
    offsets = np.frombuffer(ends or b"", np.int64)[texts.offset : texts.offset + len(texts) + 1]
    if len(texts):
        whole.update(np.diff(offsets).tobytes())
        whole.update(memoryview(data or b"")[offsets[0] : offsets[-1]])
    return whole.hexdigest()


@dataclass(slots=True)
class IndexShelf:
    """The indexes of a connection, each made once."""

    indexing: Tfidf | ByVectors
    """The way in which texts are indexed."""
    vectors: KnownVectors
    """Vectors of texts that are compared with each other; an index of vectors takes them from
    there."""
    files: IndexFiles | None = None
    """The files in which indexes of words are kept; None for memory alone."""
    made: int = 0
    """The number of indexes that were made, not found."""
    _known: dict[str, tuple[str, Corpus]] = field(default_factory=dict)

    @classmethod
    def open(
        cls, folder: str | Path | None = None, embedder: Embedder | None = None, hint: str = ""
    ) -> IndexShelf:
        """embedder: None for search by words, and similarity by trigrams. hint: what is said once
        when these are used. Raises ConfigError if the folder cannot be used.
        """
        files = None if folder is None else IndexFiles.open(folder)
        if embedder is None:
            return cls(Tfidf(hint), KnownVectors(Trigrams(hint), keeps=False), files)
        vectors = KnownVectors(embedder, None if files is None else files.folder)
        return cls(ByVectors(vectors), vectors)

    def corpus(self, name: str, texts: pa.Array) -> Corpus:
        """Texts with their index: a kept one if it is of the same texts, else a new one.

        name: of the corpus; an index of other texts under this name is replaced.
        """
        content = digest(texts)
        known = self._known.get(name)
        if known is not None and known[0] == content:
            return known[1]
        corpus = Corpus(texts, self._index(name, content, texts))
        self._known[name] = (content, corpus)
        return corpus

    def close(self) -> None:
        """Close the files."""
        self.vectors.close()

    def _index(self, name: str, content: str, texts: pa.Array) -> Index:
        if self.files is None or isinstance(self.indexing, ByVectors):
            self.made += 1
            return self.indexing.index(Strings(texts))
        stamp = Stamp(self.indexing.name, content)
        kept = self.files.load(name, stamp)
        if kept is not None:
            return self.indexing.load(kept)
        self.made += 1
        made = self.indexing.index(Strings(texts))
        self.files.save(name, stamp, made.arrays())
        return made
