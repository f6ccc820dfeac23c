"""SQL that sqlglot reads in another way than DuckDB, unless it is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from relquery.connection import Connection
from tests.sql.fakes import FakeBackend

ITEMS = [
    "DATE '2024-01-03'::VARCHAR",
    "TIMESTAMP '2024-01-01 10:00:00'::DATE",
    "TIMESTAMP WITH TIME ZONE '2024-01-01 10:00:00+00'::DATE::VARCHAR",
    "INTERVAL '1 day'::VARCHAR",
    "DECIMAL(10,2) '5.5'::INT",
    "INT '5'::VARCHAR || 'x'",
    "JSON '[1, 2]'[0]",
    "[DATE '2024-01-03'::VARCHAR, title]",
    "DATE '2024-01-03'::TIMESTAMP - INTERVAL '1 hour'",
    "coalesce(title, DATE '2024-01-03'::VARCHAR)",
    "'5'::INT::VARCHAR",
    "current_date",
    "CURRENT_DATE",
    "today()",
    "current_date - 1",
    "current_date AS day",
    "current_catalog",
    "session_user",
    "extract(year FROM current_date)",
]


@pytest.mark.parametrize(
    "rest", ["", *(pytest.param(one, marks=pytest.mark.long) for one in
                   ("WHERE LLM('up', id) <> '0'", "GROUP BY ALL"))]
)  # fmt: skip
def test_items_are_those_of_plain_duckdb(
    rest: str, con: Connection, reference: Callable[[str], list[tuple[Any, ...]]]
) -> None:
    query = f"SELECT {', '.join(ITEMS)}, LLM('up', title) AS u FROM films {rest} ORDER BY u, 1"
    assert con.sql(query).fetchall() == reference(query)


def test_words_for_the_time_keep_their_names(con: Connection, backend: FakeBackend) -> None:
    words = ["current_timestamp", "current_time", "localtime", "now()"]
    result = con.sql(f"SELECT {', '.join(words)}, LLM('up', current_date) AS u FROM films LIMIT 1")
    assert result.arrow().column_names == [*words, "u"]
    assert list(backend.asked[0].fields) == ["current_date"]  # a field has its name, too
