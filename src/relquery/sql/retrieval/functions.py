"""SQL functions that find, compare and measure texts. They make no LLM call.

passages('docs', question [, k [, 'column']]): the k texts that fit a question best, best first.
AI_SEARCH('docs', question [, k [, 'column']]): the same with their scores.
AI_DEDUP('names', name [, threshold [, 'column']]): the first text that is nearly the same.
AI_SIMILARITY(a, b): the cosine of two texts, 1 for equal ones.
AI_EMBED(text): its vector, of length 1.
AI_NEAREST(texts, others [, k]): for each distinct text, the k nearest of the others.
AI_DUPLICATES(texts [, threshold]): each distinct text with the first of its group.
AI_COUNT_TOKENS(text, ...): how many tokens a text has for the model; Snowflake's form is understood
too: AI_COUNT_TOKENS('ai_complete', 'model', text).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial, wraps
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from relquery.backends.base import Backend
from relquery.errors import QueryError
from relquery.prompt import Role, Span
from relquery.retrieval.corpus import IndexShelf
from relquery.retrieval.index import cosines, groups, nearest
from relquery.retrieval.vectors import KnownVectors
from relquery.sql import names as ours
from relquery.sql.host.database import Database
from relquery.sql.retrieval.columns import Named
from relquery.sql.retrieval.corpora import Corpora

T = TypeVar("T")
_Column: TypeAlias = pa.ChunkedArray  # as DuckDB gives it: without NULL
_Numbers: TypeAlias = pa.ChunkedArray | None  # None: the argument is left out
_K, _THRESHOLD = 5, 0.9
_TEXT, _SCORE = pa.string(), pa.float64()
_HITS = pa.list_(pa.struct([("text", _TEXT), ("score", _SCORE)]))
_PAIRS = pa.list_(pa.struct([("text", _TEXT), ("other", _TEXT), ("score", _SCORE)]))
_GROUPS = pa.list_(pa.struct([("text", _TEXT), ("first", _TEXT)]))
_FIELDS = "unnest(value, recursive := true)"
_CHARACTERS = 4  # per token, where the tokenizer is not known
_OF_SNOWFLAKE = "ai_"


def install(database: Database, shelf: IndexShelf) -> Corpora:
    """Give a database the functions, unless it has macros of their names, which then stand."""
    corpora = Corpora(database, shelf)
    of = SearchFunctions(corpora, shelf.vectors)
    functions: dict[str, tuple[Callable[..., pa.Array], str, str]] = {
        ours.PASSAGES: (of.passages, "VARCHAR[]", "unnest(value) AS passage"),
        ours.SEARCH: (of.search, 'STRUCT("text" VARCHAR, score DOUBLE)[]', _FIELDS),
        ours.DEDUP: (of.dedup, "VARCHAR", ""),
        ours.SIMILARITY: (of.similarity, "DOUBLE", ""),
        ours.EMBED: (of.embed, "FLOAT[]", ""),
        ours.NEAREST: (
            of.nearest,
            'STRUCT("text" VARCHAR, "other" VARCHAR, score DOUBLE)[]',
            _FIELDS,
        ),
        ours.DUPLICATES: (of.duplicates, 'STRUCT("text" VARCHAR, "first" VARCHAR)[]', _FIELDS),
    }
    own = database.macros()
    for name, (function, *how) in functions.items():
        if name not in own:
            compares = name not in (ours.PASSAGES, ours.SEARCH)
            noted = _noting(name, function, database) if compares else function
            database.install_function(name, noted, *how)
    database.preparations.append(corpora.prepare)
    database.kept.compared_by = lambda: shelf.vectors.embedder.label
    database.kept.searches = corpora.is_needed
    return corpora


def _noting(
    name: str, function: Callable[..., pa.Array], database: Database
) -> Callable[..., pa.Array]:
    """A function that notes that the present query has called it."""

    @wraps(function)
    def noted(*columns: _Numbers) -> pa.Array:
        database.kept.compared.add(name.upper())
        return function(*columns)

    return noted


@dataclass(frozen=True, slots=True)
class SearchFunctions:
    """The functions, over what a statement searches and the vectors of one embedder.

    Each gives a value for each row. A parameter with a default may be left out in SQL.
    """

    corpora: Corpora
    vectors: KnownVectors

    def passages(
        self, tables: _Column, questions: _Column, limits: _Numbers = None, names: _Numbers = None
    ) -> pa.Array:
        """A list of texts."""
        lists = self._search(ours.PASSAGES, tables, questions, limits, names)
        return pa.array([[text for text, _ in hits] for hits in lists], pa.list_(_TEXT))

    def search(
        self, tables: _Column, questions: _Column, limits: _Numbers = None, names: _Numbers = None
    ) -> pa.Array:
        """A list of texts and scores."""
        return pa.array(self._search(ours.SEARCH, tables, questions, limits, names), _HITS)

    def dedup(
        self, tables: _Column, texts: _Column, thresholds: _Numbers = None, names: _Numbers = None
    ) -> pa.Array:
        """A text."""
        of_rows = _numbers(thresholds, texts, _THRESHOLD, _threshold)
        named = _named(ours.DEDUP, tables, names)
        return pa.array(_found(named, _texts(texts), of_rows, self.corpora.first_texts), _TEXT)

    def similarity(self, texts: _Column, others: _Column) -> pa.Array:
        """A number."""
        left, other = _texts(texts), _texts(others)
        scores = cosines(self.vectors.of(left), self.vectors.of(other))
        # Equal texts are near without vectors, too.
        is_same = [text == another for text, another in zip(left, other, strict=True)]
        return pa.array(np.where(is_same, 1.0, scores), _SCORE)

    def embed(self, texts: _Column) -> pa.Array:
        """A vector."""
        return pa.array(list(self.vectors.of(_texts(texts))), pa.list_(pa.float32()))

    def nearest(self, texts: _Column, others: _Column, limits: _Numbers = None) -> pa.Array:
        """A list of pairs."""
        lists = [_lists(column, ours.NEAREST) for column in (texts, others)]
        rows = zip(*lists, _numbers(limits, texts, _K, _count), strict=True)
        return pa.array([list(self._pairs(*row)) for row in rows], _PAIRS)

    def duplicates(self, texts: _Column, thresholds: _Numbers = None) -> pa.Array:
        """A list of texts, each with the first of its group."""
        numbers = _numbers(thresholds, texts, _THRESHOLD, _threshold)
        rows = zip(_lists(texts, ours.DUPLICATES), numbers, strict=True)
        return pa.array([list(self._groups(*row)) for row in rows], _GROUPS)

    def _search(
        self, function: str, tables: _Column, questions: _Column, limits: _Numbers, names: _Numbers
    ) -> list[list[tuple[str, float]]]:
        if len(questions) and not _is_text(questions.type):
            usage = ours.USAGES[function]
            raise QueryError(
                f"The question of {usage.partition('(')[0]} is of type {questions.type}; it must "
                f"be a text. Write {usage}, or cast the question: question::VARCHAR."
            )
        of_rows = _numbers(limits, questions, _K, _count)
        named = _named(function, tables, names)
        return _found(named, _texts(questions), of_rows, self.corpora.search)

    def _pairs(
        self, texts: list[str], others: list[str], limit: int
    ) -> Iterator[tuple[str, str, float]]:
        if not texts or not others:
            return
        near = nearest(self.vectors.of(texts), self.vectors.of(others), limit)
        for text, hits in zip(texts, near, strict=True):
            for place, score in zip(hits.texts.tolist(), hits.scores.tolist(), strict=True):
                yield text, others[place], score

    def _groups(self, texts: list[str], threshold: float) -> Iterable[tuple[str, str]]:
        first = groups(self.vectors.of(texts), threshold).tolist() if texts else []
        return zip(texts, (texts[leader] for leader in first), strict=True)


def _found(
    named: list[Named],
    texts: list[str],
    numbers: list[Any],
    find: Callable[[Named, list[str], Any], list[T]],
) -> list[T]:
    """What is found for each row. Rows that search one column with one number are one search."""
    rows_of: dict[tuple[Named, Any], list[int]] = {}
    for row, key in enumerate(zip(named, numbers, strict=True)):
        rows_of.setdefault(key, []).append(row)
    by_row: dict[int, T] = {}
    for (column, number), rows in rows_of.items():
        values = find(column, [texts[row] for row in rows], number)
        by_row.update(zip(rows, values, strict=True))
    return [by_row[row] for row in range(len(texts))]


def _named(function: str, tables: _Column, names: _Numbers) -> list[Named]:
    if not _is_text(tables.type):
        raise QueryError(f"The table to search must be a text, in quotes: {ours.USAGES[function]}.")
    columns = [""] * len(tables) if names is None else _texts(names)
    return [Named(*pair) for pair in zip(_texts(tables), columns, strict=True)]


def _is_text(kind: pa.DataType) -> bool:
    """Whether values of a type are texts, as VARCHAR and ENUM have them."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _texts(column: _Column) -> list[str]:
    return list(column.cast(pa.large_string()).to_pylist())


def _lists(column: _Column, function: str) -> list[list[str]]:
    """The distinct texts of each list. Raises QueryError for a column of another type."""
    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        raise QueryError(
            f"{ours.USAGES[function]} takes a list of texts, e.g. list(name); it was given {kind}."
        )
    lists = column.cast(pa.list_(_TEXT)).to_pylist()
    return [list(dict.fromkeys(text for text in items if text is not None)) for items in lists]


def _numbers(
    column: _Numbers, rows: _Column, default: float, read: Callable[[object], Any]
) -> list[Any]:
    """The values of an argument that may be left out. rows: a column of the same length."""
    return [default] * len(rows) if column is None else list(map(read, column.to_pylist()))


def _count(value: object) -> int:
    """How many texts to find. Raises QueryError unless it is a whole number above 0."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise QueryError(
            f"The number of texts to find is {_shown(value)}; it must be a whole number above 0."
        )
    return value


def _threshold(value: object) -> float:
    """The least similarity. Raises QueryError unless it is above 0 and at most 1."""
    try:
        threshold = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        threshold = -1.0
    if not 0 < threshold <= 1:
        raise QueryError(f"The threshold is {_shown(value)}; it must be above 0 and at most 1.")
    return threshold


def _shown(value: object) -> str:
    """A number as it is, and a text in quotes; a Decimal would show its type."""
    return repr(value) if isinstance(value, str) else str(value)


def install_count(database: Database, backend: Backend) -> None:
    """Give a database AI_COUNT_TOKENS, unless it has a macro of its name, which then stands.

    It counts with the backend's tokenizer, if there is one. A provider does not tell how it cuts
    text into tokens; there it is one for four characters.
    """

    def count(*columns: pa.ChunkedArray) -> pa.Array:
        counted = cache(partial(_count_tokens, backend))
        return pa.array(map(counted, zip(*map(_as_texts, columns), strict=True)), pa.int64())

    if ours.COUNT_TOKENS not in database.macros():
        database.install_function(ours.COUNT_TOKENS, count, "BIGINT")


def _as_texts(column: pa.ChunkedArray) -> list[str | None]:
    """The values of a column as texts; lists and structs as Python writes them."""
    if pa.types.is_nested(column.type):
        return [None if value is None else str(value) for value in column.to_pylist()]
    return list(column.cast(pa.string()).to_pylist())


def _count_tokens(backend: Backend, row: tuple[str | None, ...]) -> int | None:
    first = row[0]
    if len(row) > 1 and first is not None and first.lower().startswith(_OF_SNOWFLAKE):
        row = row[-1:]
    total = 0
    for text in row:
        if text is None:
            return None
        runs = backend.insight.runs((Span(text, Role.NONE),)) if text else []
        total += -(-len(text) // _CHARACTERS) if runs is None else sum(map(len, runs))
    return total
