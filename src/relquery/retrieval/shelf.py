"""Keeps indexes: in memory, and in a folder, where later programs find them again."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from relquery.retrieval.corpus import Corpus, Strings, digest
from relquery.retrieval.embedder import Embedder
from relquery.retrieval.files import Files, Stamp
from relquery.retrieval.index import Index, Indexing, SavedIndexing
from relquery.retrieval.known import KnownVectors
from relquery.retrieval.ngrams import Trigrams
from relquery.retrieval.tfidf import Tfidf
from relquery.retrieval.vectors import ByVectors


@dataclass(slots=True)
class Shelf:
    """indexing: how texts are indexed. vectors: of texts that are compared with each other; an
    index of vectors takes them from there. files: where indexes of words are kept; None for memory
    alone. made: how many indexes were made, not found.
    """

    indexing: Indexing
    vectors: KnownVectors
    files: Files | None = None
    made: int = 0
    _known: dict[str, tuple[str, Corpus]] = field(default_factory=dict)

    @classmethod
    def open(
        cls, folder: str | Path | None = None, embedder: Embedder | None = None, hint: str = ""
    ) -> Shelf:
        """embedder: None for search by words, and similarity by trigrams. hint: what is said once
        when these are used. Raises ConfigError if the folder cannot be used.
        """
        files = None if folder is None else Files.open(folder)
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
        if self.files is None or not isinstance(self.indexing, SavedIndexing):
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
