"""Functions that compare texts of a statement: AI_SIMILARITY, AI_EMBED, AI_NEAREST, AI_DUPLICATES.

AI_SIMILARITY(a, b): the cosine of two texts, 1 for equal ones.
AI_EMBED(text): its vector, of length 1.
AI_NEAREST(texts, others [, k]): for each distinct text, the k nearest of the others.
AI_DUPLICATES(texts [, threshold]): each distinct text with the first of its group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from relquery.retrieval.known import KnownVectors
from relquery.retrieval.pairs import cosines, groups, nearest
from relquery.sql import names as ours
from relquery.sql.retrieval.arguments import (
    check_count,
    count_of,
    lists_of,
    numbers_of,
    texts_of,
    threshold_of,
)
from relquery.sql.retrieval.tables import THRESHOLD, K

PAIRS = pa.list_(
    pa.struct([("text", pa.string()), ("other", pa.string()), ("score", pa.float64())])
)
PAIRS_IN_SQL = 'STRUCT("text" VARCHAR, "other" VARCHAR, score DOUBLE)[]'
GROUPS = pa.list_(pa.struct([("text", pa.string()), ("first", pa.string())]))
GROUPS_IN_SQL = 'STRUCT("text" VARCHAR, "first" VARCHAR)[]'


@dataclass(frozen=True, slots=True)
class OfTexts:
    """The functions, with the vectors of one embedder."""

    vectors: KnownVectors

    def similarity(self, *columns: pa.ChunkedArray) -> pa.Array:
        """A number for each row."""
        check_count(columns, 2, 2, ours.SIMILARITY)
        texts, others = map(texts_of, columns)
        found = cosines(self.vectors.of(texts), self.vectors.of(others))
        is_same = [text == other for text, other in zip(texts, others, strict=True)]
        return pa.array(np.where(is_same, 1.0, found), pa.float64())  # without vectors, too

    def embed(self, *columns: pa.ChunkedArray) -> pa.Array:
        """A vector for each row."""
        check_count(columns, 1, 1, ours.EMBED)
        return pa.array(list(self.vectors.of(texts_of(columns[0]))), pa.list_(pa.float32()))

    def nearest(self, *columns: pa.ChunkedArray) -> pa.Array:
        """A list of pairs for each row."""
        check_count(columns, 2, 3, ours.NEAREST)
        limits = numbers_of(columns, 2, K, count_of)
        lists = (map(_distinct, lists_of(column, ours.NEAREST)) for column in columns[:2])
        rows = zip(*lists, limits, strict=True)
        return pa.array([list(self._pairs(*row)) for row in rows], PAIRS)

    def duplicates(self, *columns: pa.ChunkedArray) -> pa.Array:
        """A list of texts, each with the first of its group, for each row."""
        check_count(columns, 1, 2, ours.DUPLICATES)
        thresholds = numbers_of(columns, 1, THRESHOLD, threshold_of)
        lists = map(_distinct, lists_of(columns[0], ours.DUPLICATES))
        rows = zip(lists, thresholds, strict=True)
        return pa.array([list(self._groups(*row)) for row in rows], GROUPS)

    def _pairs(self, texts: list[str], others: list[str], limit: int) -> Iterator[object]:
        if not texts or not others:
            return
        found = nearest(self.vectors.of(texts), self.vectors.of(others), limit)
        for text, hits in zip(texts, found, strict=True):
            for at, score in zip(hits.texts.tolist(), hits.scores.tolist(), strict=True):
                yield {"text": text, "other": others[at], "score": score}

    def _groups(self, texts: list[str], threshold: float) -> Iterator[object]:
        if texts:
            first = groups(self.vectors.of(texts), threshold)
            yield from (
                {"text": text, "first": texts[at]}
                for text, at in zip(texts, first.tolist(), strict=True)
            )


def _distinct(texts: list[str | None]) -> list[str]:
    return list(dict.fromkeys(text for text in texts if text is not None))
