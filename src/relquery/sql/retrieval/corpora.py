"""The corpora that the statements and span queries of a connection search.

DuckDB calls Python functions while a statement runs, when they may not read tables. So the columns
that a statement names are read before it.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pyarrow as pa

from relquery.arrays import Float32s
from relquery.errors import QueryError
from relquery.retrieval.corpus import Corpus, IndexShelf, Strings
from relquery.retrieval.index import Found, WordlessIndex, first_near, groups
from relquery.retrieval.vectors import VectorIndex
from relquery.sql.host.database import Database
from relquery.sql.retrieval.columns import (
    OF_TABLES,
    Named,
    TextColumn,
    find_column,
    find_table,
    is_entry,
    named_in,
)

_MOST_KNOWN = 1 << 16  # questions whose passages are kept

Search = Callable[[str, int], Sequence[str]]


@dataclass(slots=True)
class Searched:
    """A column as a statement finds it. found: by number of texts, what questions have found; a
    statement reads its rows several times. first: by threshold, the first text of each text's group
    and the texts that begin groups.
    """

    column: TextColumn
    texts: pa.Array
    corpus: Corpus | None = None
    found: dict[int, dict[str, Found]] = field(default_factory=dict)
    first: dict[float, tuple[dict[str, str], list[str]]] = field(default_factory=dict)

    def hits(self, found: Found) -> list[tuple[str, float]]:
        """(text, score) of what a question has found."""
        texts = self.texts.take(pa.array(found.texts)).to_pylist()
        return list(zip(texts, found.scores.tolist(), strict=True))


@dataclass(slots=True)
class Corpora:
    """ready: what the present statement searches, by its lower-case name."""

    database: Database
    shelf: IndexShelf
    ready: dict[Named, Searched] = field(default_factory=dict)

    def is_needed(self, sql: str) -> bool:
        """Whether a statement searches anything."""
        return bool(self._named_in(sql))

    def prepare(self, sql: str) -> None:
        """Read what a statement searches. Raises QueryError for an unknown table or column."""
        for named, function in self._named_in(sql).items():
            if find_table(named.table, self.database) is None and is_entry(sql, named.table):
                raise QueryError(
                    f"The table '{named.table}' to search does not exist. A WITH entry cannot be "
                    "searched; save it as a table or view first."
                )
            self.read(named, function)

    def read(self, named: Named, function: str = "") -> None:
        """Read the texts of a column, so that it can be searched. Raises QueryError.

        named: in lower case. function: that searches it; "" for a span query.
        """
        column = find_column(named, self.database, function)
        texts = column.read(self.database)
        known = self.ready.get(named)
        if known is None or known.column != column or not known.texts.equals(texts):
            self.ready[named] = Searched(column, texts)

    @property
    def functions(self) -> list[str]:
        """Those that search tables, as far as no macro of the user has their name."""
        return [name for name in OF_TABLES if name in self.database.functions.macros]

    def _named_in(self, sql: str) -> dict[Named, str]:
        return named_in(sql, self.database.definitions(self.functions), self.functions)

    def search(
        self, named: Named, questions: Sequence[str], limit: int
    ) -> list[list[tuple[str, float]]]:
        """Up to `limit` texts for each question, with their scores, best first."""
        searched = self._searched(named)
        corpus = searched.corpus
        if corpus is None:
            corpus = self.shelf.corpus(str(searched.column), searched.texts)
            if isinstance(corpus.index, WordlessIndex) and len(corpus.texts):
                raise QueryError(
                    f"No text of '{named.table}' has a word of two or more letters or digits, so a "
                    "search by words finds nothing. Name another column, or choose an embedder: "
                    "rq.connect(..., embedder=...)."
                )
            searched.corpus = corpus
        known = searched.found.setdefault(limit, {})
        new = [question for question in dict.fromkeys(questions) if question not in known]
        if len(known) + len(new) > _MOST_KNOWN:
            known.clear()
            new = list(dict.fromkeys(questions))
        known.update(zip(new, corpus.search(new, limit), strict=True))
        return [searched.hits(known[question]) for question in questions]

    def first_texts(self, named: Named, texts: Sequence[str], threshold: float) -> list[str]:
        """The first text of the group of near-duplicates of each text."""
        searched = self._searched(named)
        if threshold not in searched.first:
            all_texts = list(Strings(searched.texts))
            first = groups(self._vectors(searched, all_texts), threshold)
            searched.first[threshold] = (
                {text: all_texts[leader] for text, leader in zip(all_texts, first, strict=True)},
                [all_texts[leader] for leader in np.unique(first)],
            )
        known, leaders = searched.first[threshold]
        new = [text for text in dict.fromkeys(texts) if text not in known]
        if new and leaders:
            vectors = self.shelf.vectors
            near = first_near(vectors.of(new), vectors.of(leaders), threshold)
            for text, leader in zip(new, near.tolist(), strict=True):
                known[text] = text if leader < 0 else leaders[leader]
        return [known.get(text, text) for text in texts]

    def _searched(self, named: Named) -> Searched:
        """What a function searches. Raises QueryError if the statement does not name it."""
        index = self.ready.get(named.lower())
        if index is None:
            raise QueryError(
                f"The table to search, '{named.table}', must be written as a text in the "
                "statement, e.g. passages('docs', question, 5). So must its column."
            )
        return index

    def _vectors(self, searched: Searched, texts: list[str]) -> Float32s:
        corpus = searched.corpus
        if isinstance(corpus, Corpus) and isinstance(corpus.index, VectorIndex):
            return corpus.index.vectors
        return self.shelf.vectors.of_distinct(texts)


@dataclass(frozen=True, slots=True)
class NamedTables(Mapping[str, Search]):
    """A search in texts of a table: of "docs" its only column of text, of "docs.text" that one.

    Each table is read once, so a new one is needed once tables may have changed.
    """

    corpora: Corpora
    _known: dict[str, Search] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Search:
        if name not in self._known:
            named = self._named(name)
            if named is None:
                raise KeyError(name)
            self.corpora.read(named)
            self._known[name] = lambda question, limit: self._find(named, question, limit)
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._named(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self.corpora.database.tables())

    def __len__(self) -> int:
        return len(self.corpora.database.tables())

    def _named(self, name: str) -> Named | None:
        database = self.corpora.database
        if find_table(name, database) is not None:
            return Named(name, "").lower()
        table, _, column = name.rpartition(".")
        is_table = table and find_table(table, database) is not None
        return Named(table, column.strip('"')).lower() if is_table else None

    def _find(self, named: Named, question: str, limit: int) -> list[str]:
        (texts,) = self.corpora.search(named, [question], limit)
        return [text for text, _ in texts]


def with_tables(given: Any, corpora: Corpora) -> Any:
    """The corpora that a user gives, and the tables under all other names."""
    tables = NamedTables(corpora)
    if isinstance(given, Mapping):
        return ChainMap(dict(given), cast(MutableMapping[str, Any], tables))
    return tables if given is None else given
