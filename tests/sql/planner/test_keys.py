"""Keys that tables declare reach the solver that the query is ordered with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from relquery.config import Order
from relquery.connection import Connection, connect
from relquery.reordering.dependencies import Dependency
from relquery.reordering.reorder import reorder
from relquery.sql.inputs import inputs
from tests.cases import values
from tests.sql.fakes import FakeBackend

TABLES = """
    CREATE TABLE products (asin INTEGER PRIMARY KEY, title VARCHAR, price INTEGER);
    CREATE TABLE places (country VARCHAR, city VARCHAR, zip INTEGER, UNIQUE (country, city));
    CREATE TABLE reviews (asin INTEGER, review VARCHAR);
    INSERT INTO products SELECT i, 'film ' || i, i % 2 FROM range(3) t(i);
    INSERT INTO places SELECT 'c' || i % 2, 'x' || i, i % 3 FROM range(4) t(i);
    INSERT INTO reviews SELECT i % 3, 'text ' || i FROM range(6) t(i);
    CREATE SCHEMA other;
    CREATE TABLE other.products (asin INTEGER, title VARCHAR UNIQUE, price INTEGER);
    INSERT INTO other.products FROM products"""


@pytest.fixture(scope="module")
def con() -> Iterator[Connection]:
    with connect(FakeBackend(lambda query, fields: "x"), ledger=None) as connection:
        connection.sql(TABLES)
        yield connection


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[Dependency]]:
    """The dependencies that solvers are given, with columns named by their places."""
    found: list[Sequence[Dependency]] = []
    solve = reorder

    def noted(
        columns: Any, method: Any, dependencies: Sequence[Dependency], bags: Any, **options: Any
    ) -> Any:
        found.append(dependencies)
        return solve(columns, method, dependencies, bags, **options)

    monkeypatch.setattr(inputs, "reorder", noted)
    return found


DETERMINED = values(__file__, "keys.txt")


@pytest.mark.parametrize("order", ["fixed", pytest.param("ggr", marks=pytest.mark.long)])
def test_a_declared_key_determines_the_other_fields_of_its_table(
    order: Order, con: Connection, given: list[Sequence[Dependency]]
) -> None:
    for query, said in DETERMINED:
        given.clear()
        con.sql(f"SELECT {query}", order=order)
        assert [[str(one) for one in each] for each in given] == [said], query


def test_the_default_order_needs_no_keys_and_a_with_entry_hides_them(
    con: Connection, given: list[Sequence[Dependency]]
) -> None:
    con.sql("SELECT LLM('q', asin, title, price) FROM products")
    con.sql(
        "WITH products AS (SELECT 1 AS asin, 'a' AS title UNION ALL SELECT 1, 'b') "
        "SELECT LLM('q', asin, title) FROM products", order="fixed"
    )  # fmt: skip
    assert given == [(), ()]
