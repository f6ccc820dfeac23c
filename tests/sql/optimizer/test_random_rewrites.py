"""Rewritten statements give the rows of plain DuckDB, and ask no more than without the rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relquery.connection import connect
from relquery.errors import QueryError, UnsupportedQueryError
from tests.sql.conftest import MACROS, SETUP, reference_sql, upper_or_length
from tests.sql.fakes import FakeBackend
from tests.sql.optimizer.queries import (
    correlated_queries,
    joined_queries,
    outer_queries,
    twice_read,
)

pytestmark = pytest.mark.long

Rows = list[tuple[Any, ...]]
WITHOUT_RULES = patch("relquery.sql.planner.statement.optimize", lambda tree, *more: tree)


@pytest.fixture(scope="module")
def check() -> Iterator[Callable[[str], None]]:
    """Compares a query with plain DuckDB, and with the same query without the rules."""
    backend = FakeBackend(upper_or_length)
    with connect(backend, ledger=None, order="original") as con, duckdb.connect() as plain:
        con.database.execute(SETUP)
        plain.execute(SETUP + MACROS)

        def run(query: str, refused: type[QueryError]) -> tuple[Rows, int] | None:
            backend.asked.clear()
            try:
                rows = con.sql(query).fetchall()
            except refused:
                assert not backend.asked
                return None
            return sorted(rows, key=repr), len(backend.asked)

        def check(query: str) -> None:
            try:
                wanted = sorted(plain.execute(reference_sql(query)).fetchall(), key=repr)
            except duckdb.Error:
                return
            found = run(query, UnsupportedQueryError)
            with WITHOUT_RULES:
                before = run(query, QueryError)
            if found is None:
                assert before is None
            else:
                assert found[0] == wanted
                assert before is None or found[1] <= before[1]

        yield check


@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(
    query=st.one_of(outer_queries(), twice_read(), correlated_queries(), joined_queries()),
)
def test_a_rewritten_query_gives_the_rows_of_plain_duckdb(
    query: str, check: Callable[[str], None]
) -> None:
    check(query)
