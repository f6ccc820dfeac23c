"""Keeps indexes: in memory, and in a folder, where later programs find them again."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from relquery.retrieval.corpus import Corpus, Strings, digest
from relquery.retrieval.embedder import Embedder
from relquery.retrieval.files import Files, Stamp
from relquery.retrieval.index import Arrays, Index, Indexing
from relquery.retrieval.tfidf import Tfidf
from relquery.retrieval.vectors import ByVectors


@dataclass(slots=True)
class Shelf:
    """indexing: how texts are indexed. files: where indexes are kept; None for memory alone. made:
    how many indexes were made, not found.
    """

    indexing: Indexing
    files: Files | None = None
    made: int = 0
    _known: dict[str, tuple[Stamp, Corpus]] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: str | Path | None = None, embedder: Embedder | None = None) -> Shelf:
        """embedder: None for search by words. Raises ConfigError if the folder cannot be used."""
        indexing = Tfidf() if embedder is None else ByVectors(embedder)
        return cls(indexing, None if folder is None else Files.open(folder))

    def corpus(self, name: str, texts: pa.Array) -> Corpus:
        """Texts with their index: a kept one if it is of the same texts, else a new one.

        name: of the corpus; an index of other texts under this name is replaced.
        """
        stamp = Stamp(self.indexing.name, digest(texts))
        known = self._known.get(name)
        if known is not None and known[0] == stamp:
            return known[1]
        earlier = None if self.files is None else self.files.load(name)
        if earlier is not None and earlier[0] == stamp:
            index = self.indexing.load(earlier[1])
        else:
            index = self._made(name, stamp, texts, earlier)
        corpus = Corpus(texts, index)
        self._known[name] = (stamp, corpus)
        return corpus

    def _made(
        self, name: str, stamp: Stamp, texts: pa.Array, earlier: tuple[Stamp, Arrays] | None
    ) -> Index:
        known = self._known.get(name)
        if known is not None:
            reusable: Arrays | None = known[1].index.arrays()
        else:
            is_alike = earlier is not None and earlier[0].indexing == stamp.indexing
            reusable = earlier[1] if earlier is not None and is_alike else None
        index = self.indexing.index(Strings(texts), reusable)
        self.made += 1
        if self.files is not None:
            self.files.save(name, stamp, index.arrays())
        return index
