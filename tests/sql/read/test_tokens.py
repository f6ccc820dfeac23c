"""SQL that sqlglot reads in another way than DuckDB, unless it is told."""

from __future__ import annotations

import pytest

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


@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("rest", ["", "WHERE LLM('up', id) <> '0'", "GROUP BY ALL"])
def test_items_are_those_of_plain_duckdb(item: str, rest: str, con, reference) -> None:
    query = f"SELECT {item}, LLM('up', title) AS u FROM films {rest} ORDER BY u, 1"
    result = con.sql(query)
    assert result.fetchall() == reference(query)


@pytest.mark.parametrize("item", ["current_timestamp", "current_time", "localtime", "now()"])
def test_words_for_the_time_keep_their_names(item: str, con) -> None:
    result = con.sql(f"SELECT {item}, LLM('up', title) AS u FROM films")
    assert result.arrow().column_names == [item, "u"]


def test_a_word_that_is_a_field_has_its_name(con, backend) -> None:
    con.sql("SELECT LLM('up', current_date) FROM films LIMIT 1")
    assert list(backend.asked[0].fields) == ["current_date"]
