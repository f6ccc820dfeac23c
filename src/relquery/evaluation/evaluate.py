"""Scores of a query's predictions against right answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relquery.connection import Connection
from relquery.errors import ConfigError, QueryError, type_of, unknown
from relquery.evaluation.columns import Matching, Normalize, find_places, read_columns
from relquery.evaluation.evaluation import Evaluation
from relquery.sql.parser.statements import split
from relquery.sql.settings import SETTINGS, keywords_of

_USE = "Write rq.evaluate(con, query, truth='column')."


def check_arguments(con: object, query: object, truth: object) -> None:
    """Raises ConfigError for arguments in the wrong place and for a missing `truth`."""
    if not isinstance(con, Connection):
        swapped = " The first two arguments are swapped." if isinstance(query, Connection) else ""
        raise ConfigError(
            f"The first argument is {type_of(con)}; it must be a connection.{swapped} {_USE}"
        )
    if not isinstance(query, str):
        raise ConfigError(f"query is {type_of(query)}; it must be a string of SQL. {_USE}")
    if not isinstance(truth, str):
        raise ConfigError(f"truth is {type_of(truth)}; it must be the name of a column. {_USE}")
    if not truth:
        raise ConfigError(
            "truth is missing. Give the column of right answers, which the query returns: "
            "truth='column'."
        )


def check_columns(
    con: Connection,
    query: str,
    params: Sequence[Any] | Mapping[str, Any] | None,
    truth: str,
    prediction: str | None,
    key: Sequence[str],
) -> None:
    """Raises ConfigError for names that the query does not return.

    Several statements are not checked: the last may read what those before it create.
    """
    names = _columns(con, query, params)
    if names is not None:
        find_places(names, truth, prediction, key)


def _columns(
    con: Connection, query: str, params: Sequence[Any] | Mapping[str, Any] | None
) -> list[str] | None:
    """The columns of a query; None if only running it can tell, or if it is wrong."""
    try:
        if len(split(query, con.database)) != 1:
            return None
        described = con.sql(f"DESCRIBE {query}", params)
    except QueryError:  # running the query says what is wrong, and where
        return None
    return [str(name) for name in described.table.column(0).to_pylist()]


def evaluate(
    con: Connection,
    query: str,
    truth: str = "",
    *,
    prediction: str | None = None,
    key: str | Sequence[str] = (),
    params: Sequence[Any] | Mapping[str, Any] | None = None,
    normalize: bool | Normalize = False,
    tolerance: float | None = None,
    precision: float | None = None,
    **options: Any,
) -> Evaluation:
    """Run a query and compare its predictions with right answers, row by row.

    truth: the column of right answers. Rows where it is NULL do not count. prediction: the column
    of predictions; by default the only column that is neither truth nor key. NULL means that a row
    has no answer; such a row is never right. key: the columns that identify a row, needed to
    compare two evaluations. normalize: True ignores case, outer white space and a full stop at the
    end of texts; or a function that is applied to both texts. tolerance: by how much numbers may
    differ. precision: of predictions that are scores, for right answers that are booleans, a
    threshold is chosen: the lowest one with this precision; None for the one with the best F1.
    params, options: as for `Connection.sql`.

    Raises ConfigError for columns and settings that do not fit, where possible before the query
    runs; QueryError if a key repeats; and what `Connection.sql` raises.
    """
    check_arguments(con, query, truth)
    known = [*keywords_of(evaluate), *keywords_of(Connection.sql), *SETTINGS]
    for name in options:
        if name not in known:
            raise ConfigError(unknown("keyword", name, known, of="evaluate"))
    matching = Matching.of(normalize, tolerance)
    keys = (key,) if isinstance(key, str) else tuple(key)
    check_columns(con, query, params, truth, prediction, keys)
    result = con.sql(query, params, **options)
    columns = read_columns(result, truth, prediction, keys)
    return Evaluation.of(result, columns, matching, precision)
