"""Runs a query and scores its predictions against right answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relquery.connection import Connection
from relquery.errors import ConfigError, unknown
from relquery.evaluation.arguments import check_arguments, check_columns
from relquery.evaluation.columns import read_columns
from relquery.evaluation.evaluation import Evaluation
from relquery.evaluation.matching import Matching, Normalize
from relquery.sql.settings import SETTINGS, keywords_of


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
    **options: Any,
) -> Evaluation:
    """Run a query and compare its predictions with right answers, row by row.

    truth: the column of right answers: one that the query returns, or "table.column" with a key.
    Rows where it is NULL do not count. prediction: the column of predictions; by default the only
    column that is neither truth nor key. NULL means that a row has no answer; such a row is never
    right. key: the columns that identify a row, needed to compare two evaluations. normalize: True
    ignores case, outer white space and a full stop at the end of texts; or a function that is
    applied to both texts. tolerance: by how much numbers may differ. params, options: as for
    `Connection.sql`.

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
    return Evaluation.of(result, read_columns(con, result, truth, prediction, keys), matching)
