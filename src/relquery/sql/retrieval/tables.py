"""Functions that search a table: passages, AI_SEARCH and AI_DEDUP.

passages('docs', question [, k [, 'column']]): the k texts that fit a question best, best first.
AI_SEARCH('docs', question [, k [, 'column']]): the same with their scores.
AI_DEDUP('names', name [, threshold [, 'column']]): the first text that is nearly the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from relquery.errors import QueryError
from relquery.retrieval.index import Found
from relquery.sql import names as ours
from relquery.sql.retrieval.arguments import (
    Columns,
    check_count,
    check_text,
    count_of,
    is_text,
    numbers_of,
    rows_by,
    texts_of,
    threshold_of,
)
from relquery.sql.retrieval.corpora import Corpora, Searched
from relquery.sql.retrieval.named import Named

K, THRESHOLD = 5, 0.9
HITS = pa.list_(pa.struct([("text", pa.string()), ("score", pa.float64())]))
HITS_IN_SQL = 'STRUCT("text" VARCHAR, score DOUBLE)[]'


@dataclass(frozen=True, slots=True)
class OfTables:
    """The functions, over what a statement searches."""

    corpora: Corpora

    def passages(self, *columns: pa.ChunkedArray) -> pa.Array:
        """A list of texts for each row."""
        return pa.array(self._search(columns, ours.PASSAGES, _texts), pa.list_(pa.string()))

    def search(self, *columns: pa.ChunkedArray) -> pa.Array:
        """A list of texts and scores for each row."""
        return pa.array(self._search(columns, ours.SEARCH, _hits), HITS)

    def dedup(self, *columns: pa.ChunkedArray) -> pa.Array:
        """A text for each row."""
        check_count(columns, 2, 4, ours.DEDUP)
        texts = texts_of(columns[1])
        thresholds = numbers_of(columns, 2, THRESHOLD, threshold_of)
        found = [""] * len(texts)
        keys = list(zip(_named(columns, ours.DEDUP), thresholds, strict=True))
        for (named, threshold), rows in rows_by(keys).items():
            first = self.corpora.first_texts(named, [texts[row] for row in rows], threshold)
            for row, text in zip(rows, first, strict=True):
                found[row] = text
        return pa.array(found, pa.string())

    def _search(
        self, columns: Columns, function: str, read: Callable[[Searched, Found], list[object]]
    ) -> list[list[object]]:
        check_count(columns, 2, 4, function)
        check_text(columns[1], function)
        questions = texts_of(columns[1])
        limits = numbers_of(columns, 2, K, count_of)
        found: list[list[object]] = [[]] * len(questions)
        keys = list(zip(_named(columns, function), limits, strict=True))
        for (named, limit), rows in rows_by(keys).items():
            hits = self.corpora.search(named, [questions[row] for row in rows], limit)
            searched = self.corpora.searched(named)
            for row, hit in zip(rows, hits, strict=True):
                found[row] = read(searched, hit)
        return found


def _named(columns: Columns, function: str) -> list[Named]:
    if not is_text(columns[0].type):
        raise QueryError(f"The table to search must be a text, in quotes: {ours.USAGES[function]}.")
    tables = texts_of(columns[0])
    names = texts_of(columns[3]) if len(columns) > 3 else [""] * len(tables)
    return [Named(table, name) for table, name in zip(tables, names, strict=True)]


def _texts(searched: Searched, found: Found) -> list[object]:
    return list(searched.texts.take(pa.array(found.texts)).to_pylist())


def _hits(searched: Searched, found: Found) -> list[object]:
    scores = found.scores.tolist()
    return [
        {"text": text, "score": score}
        for text, score in zip(_texts(searched, found), scores, strict=True)
    ]
