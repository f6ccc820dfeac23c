"""The columns of a result that are compared: predictions, right answers and keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from relquery.connection import Connection
from relquery.errors import ConfigError, QueryError, unknown
from relquery.evaluation.matching import is_number
from relquery.sql.exchange.python import to_plain
from relquery.sql.names import quoted
from relquery.sql.result import Result

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ScoredColumns:
    """The prediction, the right answer and the key of each row (empty tuples without a key).

    missing: keys of the table of right answers for which the query returned no row.
    """

    predictions: list[Any]
    truths: list[Any]
    keys: list[Key]
    missing: int = 0

    @property
    def has_scores(self) -> bool:
        """Whether the predictions are numbers and the right answers booleans."""
        said = [one for one in self.predictions if one is not None]
        right = [one for one in self.truths if one is not None]
        booleans = [isinstance(one, bool) for one in right]
        return all(map(is_number, said)) and bool(said and booleans) and all(booleans)


@dataclass(frozen=True, slots=True)
class Places:
    """Where the columns are in a result. truth: None if it is a column of another table."""

    keys: list[int]
    truth: int | None
    prediction: int


def find_places(
    names: Sequence[str], truth: str, prediction: str | None, key: Sequence[str]
) -> Places:
    """Find columns by their names. names: what the query returns.

    truth: one of them; or "table.column", whose rows are found by the key. Raises ConfigError.
    """
    keys = [_place(names, name) for name in key]
    at = _find(names, truth)
    if at is None:
        _check_table(names, truth, key)
    taken = {*keys, *(() if at is None else (at,))}
    return Places(keys, at, _prediction(names, prediction, taken))


def read_columns(
    con: Connection, result: Result, truth: str, prediction: str | None, key: Sequence[str]
) -> ScoredColumns:
    """Read the columns of a result. The arguments are those of `find_places`.

    Raises ConfigError for names that do not exist, QueryError for keys that repeat.
    """
    places = find_places(result.columns, truth, prediction, key)
    keys = _keys(result, places.keys)
    if places.truth is not None:
        truths, missing = _values(result, places.truth), 0
    else:
        by_key = right_answers(con, truth, key)
        truths = [by_key.get(one) for one in keys]
        missing = len(by_key.keys() - set(keys))
    return ScoredColumns(_values(result, places.prediction), truths, keys, missing)


def _find(names: Sequence[str], name: str) -> int | None:
    """The place of a column; None if there is none. Upper and lower case are the same, as in SQL.

    Raises ConfigError.
    """
    if not isinstance(name, str):
        raise ConfigError(f"{name!r} must be the name of a column.")
    lower = [one.lower() for one in names]
    if lower.count(name.lower()) > 1:
        raise ConfigError(f"The query returns {name!r} more than once. Give each column a name.")
    return lower.index(name.lower()) if name.lower() in lower else None


def _place(names: Sequence[str], name: str) -> int:
    at = _find(names, name)
    if at is None:
        raise ConfigError(unknown("column", name, names, of="the result"))
    return at


def _check_table(names: Sequence[str], truth: str, key: Sequence[str]) -> None:
    """Raises ConfigError if `truth` cannot be a column of another table."""
    if "." not in truth:
        raise ConfigError(
            unknown("column", truth, names, of="the result")
            + " truth must be a column that the query returns, or 'table.column' with key=."
        )
    if not key:
        raise ConfigError(
            f"truth is {truth!r}, a column of a table. Give key=, the columns that say which row "
            "of the table belongs to which row of the query."
        )


def _prediction(names: Sequence[str], name: str | None, taken: set[int]) -> int:
    """The column of predictions: the one that is named, or the only one that is left."""
    if name is not None:
        return _place(names, name)
    left = [at for at in range(len(names)) if at not in taken]
    if len(left) != 1:
        raise ConfigError(
            f"The query returns {', '.join(names)}, and it is not clear which of them is the "
            "prediction. Give prediction='column'."
        )
    return left[0]


def _values(result: Result, at: int) -> list[Any]:
    kind = result.table.schema.field(at).type
    if pa.types.is_nested(kind):
        raise ConfigError(
            f"The column {result.columns[at]!r} has the type {kind}, which cannot be compared. Use "
            "booleans, numbers, text or dates, one value per row."
        )
    return to_plain(result.table.column(at), result.table.schema.field(at))


def _keys(result: Result, places: Sequence[int]) -> list[Key]:
    if not places:
        return [()] * len(result)
    keys = list(zip(*(_values(result, at) for at in places), strict=True))
    _check_unique(keys, "The query returns")
    return keys


def _check_unique(keys: Sequence[Key], where: str) -> None:
    seen: set[Key] = set()
    for one in keys:
        if one in seen:
            shown = ", ".join(map(repr, one))
            raise QueryError(
                f"{where} the key {shown} more than once. A key must identify one row."
            )
        seen.add(one)


def right_answers(
    con: Connection, truth: str, key: Sequence[str], limit: int | None = None
) -> dict[Key, Any]:
    """The right answers of a table by key. truth: "table.column". limit: of rows, all by default.

    Raises QueryError, also for a key that repeats.
    """
    table, _, column = truth.rpartition(".")
    names = ", ".join(quoted(name) for name in (*key, column))
    rows = "" if limit is None else f" LIMIT {limit}"
    found = con.sql(f"SELECT {names} FROM {'.'.join(map(quoted, table.split('.')))}{rows}")
    keys = _keys(found, range(len(key)))
    return dict(zip(keys, _values(found, len(key)), strict=True))
