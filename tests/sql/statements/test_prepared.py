"""Prepared statements with LLM calls."""

from __future__ import annotations

import pytest

from relquery.connection import Connection
from relquery.errors import QueryError


@pytest.mark.parametrize(
    ("statement", "execute", "rows"),
    [
        ("SELECT LLM('up', title) FROM films WHERE id = $1", "EXECUTE p(6)", [("DUNE",)]),
        ("SELECT LLM('up', title) FROM films WHERE id = ?", "execute P(2 * 3)", [("DUNE",)]),
        ("SELECT LLM($query, $text)", "EXECUTE p(text := 'a, (b)', query := 'up');", [("A, (B)",)]),
        ("SELECT LLM('up', ?) || ?", "EXECUTE p('a', [1, 2]::VARCHAR)", [("A[1, 2]",)]),
        ("SELECT LLM('up', id) FROM films ORDER BY id LIMIT $1", "EXECUTE p(1)", [("1",)]),
        ("SELECT LLM('up', 'x')", "EXECUTE p", [("X",)]),
    ],
)
def test_a_prepared_statement_takes_its_values(
    statement: str, execute: str, rows: list[tuple[str]], con: Connection
) -> None:
    con.sql(f"-- kept\nPREPARE p AS {statement};")
    assert con.sql(execute).fetchall() == rows
    assert con.sql(execute).fetchall() == rows


def test_statements_without_calls_are_prepared_by_duckdb(con: Connection) -> None:
    con.sql("PREPARE p AS SELECT id FROM films WHERE id = $1")
    assert con.sql("EXECUTE p(6)").fetchall() == [(6,)]
    con.sql("DEALLOCATE p")
    with pytest.raises(QueryError):
        con.sql("EXECUTE p(6)")


def test_a_statement_that_is_given_back_is_gone(con: Connection) -> None:
    con.sql("PREPARE p AS SELECT LLM('up', 'x')")
    con.sql("DEALLOCATE PREPARE p")
    with pytest.raises(QueryError):
        con.sql("EXECUTE p")


@pytest.mark.parametrize(
    ("execute", "said"),
    [("EXECUTE p", r"no value for .* \$1"), ("EXECUTE p(1, 2)", "a value for 2")],
)
def test_values_must_be_those_of_the_parameters(execute: str, said: str, con: Connection) -> None:
    con.sql("PREPARE p AS SELECT LLM('up', $1)")
    with pytest.raises(QueryError, match=said):
        con.sql(execute)
