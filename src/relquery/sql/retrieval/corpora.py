"""What the statements of a connection search.

DuckDB calls Python functions while a statement runs, when they may not read tables. So the columns
that a statement names are read before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import uuid4

import numpy as np
import pyarrow as pa

from relquery.arrays import Float32s
from relquery.errors import QueryError
from relquery.retrieval.corpus import Corpus, Strings
from relquery.retrieval.index import Found
from relquery.retrieval.pairs import Vectors, groups, nearest
from relquery.retrieval.shelf import Shelf
from relquery.retrieval.vectors import VectorIndex
from relquery.sql import names as ours
from relquery.sql.host.database import Database
from relquery.sql.retrieval.columns import Column, find_column
from relquery.sql.retrieval.named import Named, named_in

_EXECUTE = re.compile(r"\s*EXECUTE\b", re.IGNORECASE)
_MOST_KNOWN = 1 << 16  # questions whose passages are kept


@dataclass(slots=True)
class Searched:
    """A column as a statement finds it. found: by number of texts, what questions have found; a
    statement reads its rows several times. first: by threshold, the first text of each text's group
    and the texts that begin groups.
    """

    column: Column
    texts: pa.Array
    corpus: Corpus | None = None
    found: dict[int, dict[str, Found]] = field(default_factory=dict)
    first: dict[float, tuple[dict[str, str], list[str]]] = field(default_factory=dict)


@dataclass(slots=True)
class Corpora:
    """functions: those that search tables. ready: what the present statement searches, by its
    lower-case name. vectors: of texts that are compared with each other. install: gives the
    database the functions; another connection of ours on the same database may replace them.
    """

    database: Database
    shelf: Shelf
    vectors: Vectors
    functions: list[str] = field(default_factory=list)
    ready: dict[Named, Searched] = field(default_factory=dict)
    install: Callable[[], None] = lambda: None
    owner: str = field(default_factory=lambda: uuid4().hex)

    def is_needed(self, sql: str) -> bool:
        """Whether a statement searches anything."""
        return bool(self._named_in(sql))

    def prepare(self, sql: str) -> None:
        """Read what a statement searches. Raises QueryError for an unknown table or column."""
        self._own(sql)
        named = self._named_in(sql)
        if _EXECUTE.match(sql):  # of what DuckDB has prepared
            named += self.ready
        for key in dict.fromkeys(named):
            self.read(key)

    def read(self, named: Named) -> None:
        """Read the texts of a column, so that it can be searched. Raises QueryError.

        named: in lower case.
        """
        column = find_column(named, self.database)
        texts = column.read(self.database)
        known = self.ready.get(named)
        if known is None or known.column != column or not known.texts.equals(texts):
            self.ready[named] = Searched(column, texts)

    def _own(self, sql: str) -> None:
        """Install the functions again if a statement may call those of another connection."""
        is_named = any(name in sql.lower() for name in ours.OF_TEXTS)
        if not is_named and not self.database.definitions(ours.OF_TEXTS):
            return
        with suppress(QueryError):  # the transaction is aborted: the statement itself says so
            (owner,) = self.database.fetch(f"SELECT {ours.OWNER}()").column(0).to_pylist()
            if owner != self.owner:
                self.install()

    def _named_in(self, sql: str) -> list[Named]:
        definitions = self.database.definitions(self.functions)
        return [one.lower() for one in named_in(sql, definitions, self.functions)]

    def search(self, named: Named, questions: Sequence[str], limit: int) -> list[Found]:
        """Up to `limit` texts for each question, by their numbers."""
        searched = self.searched(named)
        corpus = searched.corpus
        if corpus is None:
            corpus = self.shelf.corpus(str(searched.column), searched.texts)
            searched.corpus = corpus
        known = searched.found.setdefault(limit, {})
        new = [question for question in dict.fromkeys(questions) if question not in known]
        if len(known) + len(new) > _MOST_KNOWN:
            known.clear()
            new = list(dict.fromkeys(questions))
        known.update(zip(new, corpus.search(new, limit), strict=True))
        return [known[question] for question in questions]

    def first_texts(self, named: Named, texts: Sequence[str], threshold: float) -> list[str]:
        """The first text of the group of near-duplicates of each text."""
        searched = self.searched(named)
        if threshold not in searched.first:
            all_texts = list(Strings(searched.texts))
            first = groups(self._vectors(searched, all_texts), threshold)
            searched.first[threshold] = (
                {text: all_texts[at] for text, at in zip(all_texts, first, strict=True)},
                [all_texts[at] for at in np.unique(first)],
            )
        known, leaders = searched.first[threshold]
        new = [text for text in dict.fromkeys(texts) if text not in known]
        if new and leaders:
            near = nearest(self.vectors.of(new), self.vectors.of(leaders), 1)
            for text, found in zip(new, near, strict=True):
                known[text] = leaders[found.texts[0]] if found.scores[0] >= threshold else text
        return [known.get(text, text) for text in texts]

    def searched(self, named: Named) -> Searched:
        """What a function searches. Raises QueryError if the statement does not name it."""
        found = self.ready.get(named.lower())
        if found is None:
            raise QueryError(
                f"The table to search, '{named.table}', must be written as a text in the "
                "statement, e.g. passages('docs', question, 5). So must its column."
            )
        return found

    def _vectors(self, searched: Searched, texts: list[str]) -> Float32s:
        corpus = searched.corpus
        if isinstance(corpus, Corpus) and isinstance(corpus.index, VectorIndex):
            return corpus.index.vectors
        return self.vectors.of(texts)
