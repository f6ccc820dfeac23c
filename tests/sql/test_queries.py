"""A query with LLM calls gives what DuckDB gives when the model is written as SQL."""

from __future__ import annotations

import pytest

from tests.sql.same import both, check, queries


@pytest.mark.parametrize("is_long", [False, pytest.param(True, marks=pytest.mark.long)])
def test_rows_are_those_of_the_same_query_with_the_model_as_sql(is_long: bool) -> None:
    with both() as (con, plain):
        tables = con.tables()
        check(queries("queries.sql", is_long=is_long), con, plain, ordered=True)
        left = con.database.fetch("SELECT table_name FROM duckdb_tables() ORDER BY 1")
        assert left.column(0).to_pylist() == sorted(tables)  # no scratch table stays behind
