"""The columns of a result that are compared: predictions, right answers and keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from relquery.connection import Connection
from relquery.errors import ConfigError, QueryError, unknown
from relquery.sql.exchange.python import to_python
from relquery.sql.result import Result

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Columns:
    """Of each row: what was predicted, what is right, and its key (empty tuples without a key).

    missing: keys that have a right answer in the table of right answers, and no row.
    """

    predictions: list[Any]
    truths: list[Any]
    keys: list[Key]
    missing: int = 0


def read_columns(
    con: Connection, result: Result, truth: str, prediction: str | None, key: Sequence[str]
) -> Columns:
    """Find the columns of a result by their names.

    truth: a column of the result; or "table.column", whose rows are found by the key.
    Raises ConfigError for names that are not there, QueryError for keys that repeat.
    """
    places = [_place(result, name) for name in key]
    keys = _keys(result, places)
    if (at := _find(result, truth)) is not None:
        truths, missing = _values(result, at), 0
    else:
        by_key = _right_answers(con, truth, key, result)
        truths = [by_key.get(one) for one in keys]
        missing = len(by_key.keys() - set(keys))
    taken = {*places, *(() if at is None else (at,))}
    said = _prediction(result, prediction, taken)
    return Columns(_values(result, said), truths, keys, missing)


def _find(result: Result, name: str) -> int | None:
    """The place of a column, whose name SQL reads in upper or lower case; None without one."""
    if not isinstance(name, str):
        raise ConfigError(f"{name!r} must be the name of a column.")
    names = [one.lower() for one in result.columns]
    if names.count(name.lower()) > 1:
        raise ConfigError(f"The query returns {name!r} more than once. Give each column a name.")
    return names.index(name.lower()) if name.lower() in names else None


def _place(result: Result, name: str) -> int:
    at = _find(result, name)
    if at is None:
        raise ConfigError(unknown("column", name, result.columns, of="the result"))
    return at


def _prediction(result: Result, name: str | None, taken: set[int]) -> int:
    """The column of predictions: the one that is named, or the only one that is left."""
    if name is not None:
        return _place(result, name)
    left = [at for at in range(len(result.columns)) if at not in taken]
    if len(left) != 1:
        names = ", ".join(result.columns)
        raise ConfigError(
            f"The query returns {names}, and it is not clear which of them is the prediction. "
            "Give prediction='column'."
        )
    return left[0]


def _values(result: Result, at: int) -> list[Any]:
    kind = result.table.schema.field(at).type
    if pa.types.is_nested(kind):
        raise ConfigError(
            f"The column {result.columns[at]!r} has the type {kind}. Compare booleans, numbers, "
            "text or dates, one value per row."
        )
    return to_python(result.table.column(at), result.table.schema.field(at))


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
            raise QueryError(f"{where} the key {shown} more than once. A key must name one row.")
        seen.add(one)


def _right_answers(
    con: Connection, truth: str, key: Sequence[str], result: Result
) -> dict[Key, Any]:
    """The right answers of a table by key. truth: "table.column"."""
    table, _, column = truth.rpartition(".")
    if not table:
        raise ConfigError(
            unknown("column", truth, result.columns, of="the result")
            + " For a column of a table, write truth='table.column' and give key=."
        )
    if not key:
        raise ConfigError(
            f"truth is {truth!r}, a column of a table. Give key=, the columns by which its rows "
            "belong to those of the query."
        )
    names = ", ".join(_quoted(name) for name in (*key, column))
    found = con.sql(f"SELECT {names} FROM {'.'.join(map(_quoted, table.split('.')))}")
    keys = _keys(found, range(len(key)))
    return dict(zip(keys, _values(found, len(key)), strict=True))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
