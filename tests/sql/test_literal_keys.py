"""A literal in the select list is a value, not a position, wherever it is a key."""

from __future__ import annotations

import pytest

QUERIES = [
    "SELECT id, LLM('up', title) AS k, 1 AS z FROM films ORDER BY z, title, id LIMIT 3",
    "SELECT id, 1 AS z FROM films WHERE LLM('up', id) <> '0' ORDER BY z, title, id LIMIT 3",
    "SELECT id, -2 AS z FROM films WHERE LLM('up', id) <> '0' ORDER BY 2, title, id LIMIT 3",
    "SELECT id, NULL AS z FROM films WHERE LLM('up', id) <> '0' ORDER BY z, title, id LIMIT 3",
    "SELECT DISTINCT ON (z) id, 1 AS z, LLM('up', id) FROM films ORDER BY z, title, id",
    "SELECT LLM('up', title) AS k, 'x' AS z FROM films ORDER BY z DESC, id LIMIT 2",
    "SELECT 0 AS a, 'it' AS b, sum(id) AS c FROM films WHERE LLM('up', id) <> '1' GROUP BY 1, 2",
    "SELECT genre AS k, 5 AS z, max(LLM('up', title)) AS c FROM films GROUP BY k, 2 ORDER BY 1",
    "SELECT 3 AS z, LLM('up', count(*)) FROM films GROUP BY z",
    "SELECT 3 AS z, LLM('up', count(*)) FROM empty GROUP BY z",
    "SELECT id, title FROM films WHERE LLM('up', id) <> '0' ORDER BY 2, 1 LIMIT 3",
    "SELECT DISTINCT ON (LLM('yes', genre)) id, LLM('up', title) FROM films ORDER BY 1, 2",
    "SELECT -film, LLM('up', max(text)) FROM reviews GROUP BY 1 ORDER BY 1",
    "SELECT -r.film AS k, LLM('up', count(*)) FROM reviews r GROUP BY k ORDER BY k",
    "SELECT -film AS k, count(*) FROM reviews WHERE LLM('up', id) <> '0' GROUP BY 1 ORDER BY -film",
    "SELECT title FROM (SELECT id, title FROM films WHERE LLM('up', id) <> '0') "
    "ORDER BY title, id LIMIT 2",
]


@pytest.mark.parametrize("query", QUERIES)
def test_rows_are_those_of_plain_duckdb(query: str, con, reference) -> None:
    assert con.sql(query).fetchall() == reference(query)
