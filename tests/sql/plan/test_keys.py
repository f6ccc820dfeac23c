"""Keys that tables declare reach the solver that the query is ordered with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from relquery.config import Order
from relquery.connection import Connection, connect
from relquery.sql.inputs import inputs
from relquery.table.dependencies.dependencies import Dependency
from relquery.table.reorder import reorder
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
    """The dependencies that solvers are given, with columns named by their places. None is
    discovered.
    """
    found: list[Sequence[Dependency]] = []
    solve = reorder

    def noted(
        columns: Any, method: Any, dependencies: Sequence[Dependency], bags: Any, **options: Any
    ) -> Any:
        found.append(dependencies)
        return solve(columns, method, dependencies, bags, **options)

    monkeypatch.setattr(inputs, "reorder", noted)
    monkeypatch.setattr(inputs, "discover", lambda columns, skip: ())
    return found


DETERMINED = [
    ("LLM('q', asin, title, review) FROM reviews JOIN products USING (asin)", ["0 -> 1"]),
    ("LLM('q', asin, title, review) FROM reviews NATURAL JOIN products", []),
    ("LLM('q', p.asin, title, review) FROM reviews r JOIN products p ON r.asin = p.asin",
     ["0 -> 1"]),
    ("LLM('q', title, p.*) FROM products AS p", ["1 -> 0, 2"]),
    ("LLM('q', zip, country, city) FROM places", ["1, 2 -> 0"]),
    ("LLM('q', zip, city) FROM places", []),
    ("LLM('q', asin, title, price) FROM other.products", ["1 -> 0, 2"]),
    ("LLM('q', asin, title, price) FROM memory.main.products", ["0 -> 1, 2"]),
    ("LLM('q {asin}', title, price) FROM products", ["2 -> 0, 1"]),
    ("LLM('q', asin, MODULE(title), price) FROM products", ["0 -> 1, 2"]),
    ("LLM('q', asin + 1, title, price) FROM products", []),
]  # fmt: skip


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
