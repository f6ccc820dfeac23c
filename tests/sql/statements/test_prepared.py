"""Prepared statements with LLM calls."""

from __future__ import annotations

import pytest

from relquery.connection import Connection
from relquery.errors import QueryError


def test_a_prepared_statement_takes_its_values(con: Connection) -> None:
    for statement, execute, rows in [
        ("SELECT LLM('up', title) FROM films WHERE id = $1", "EXECUTE p(6)", [("DUNE",)]),
        ("SELECT LLM('up', title) FROM films WHERE id = ?", "execute P(2 * 3)", [("DUNE",)]),
        ("SELECT LLM($query, $text)", "EXECUTE p(text := 'a, (b)', query := 'up');", [("A, (B)",)]),
        ("SELECT LLM('up', ?) || ?", "EXECUTE p('a', [1, 2]::VARCHAR)", [("A[1, 2]",)]),
        ("SELECT LLM('up', id) FROM films ORDER BY id LIMIT $1", "EXECUTE p(1)", [("1",)]),
        ("SELECT LLM('up', 'x')", "EXECUTE p", [("X",)]),
        ("SELECT id FROM films WHERE id = $1", "EXECUTE p(6)", [(6,)]),  # DuckDB's own
    ]:
        con.sql(f"-- kept\nPREPARE p AS {statement};")
        assert con.sql(execute).fetchall() == rows, statement
        con.sql("DEALLOCATE PREPARE p")
        with pytest.raises(QueryError):
            con.sql(execute)


def test_values_must_be_those_of_the_parameters(con: Connection) -> None:
    con.sql("PREPARE p AS SELECT LLM('up', $1)")
    for execute, said in [
        ("EXECUTE p", r"no value for .* \$1"),
        ("EXECUTE p(1, 2)", "a value for 2"),
    ]:
        with pytest.raises(QueryError, match=said):
            con.sql(execute)
    for _ in range(2):
        assert con.sql("EXECUTE p('a')").fetchall() == [("A",)]
