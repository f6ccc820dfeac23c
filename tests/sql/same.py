"""Queries in files whose rows are those that plain DuckDB gives with the model written as SQL."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

from relquery.config import Order
from relquery.connection import Connection, connect
from tests.sql.conftest import MACROS, SETUP, reference_sql, upper_or_length
from tests.sql.fakes import FakeBackend


def queries(file: str, *, is_long: bool, under: str = "") -> list[str]:
    """Those of a file, a query a line and longer ones indented, under titles that begin with a
    text and have (long) or have not.
    """
    found, wanted = list[str](), False
    text = (Path(__file__).parent / file).read_text(encoding="utf-8").strip()
    for one in re.split(r"\n+(?! )", text):
        if one.startswith("--"):
            wanted = one.startswith(f"-- {under}") and one.endswith("(long)") is is_long
        elif wanted:
            found.append(one.replace("\n  ", " "))
    return found


@contextmanager
def both(
    more: str = "", order: Order = "tree"
) -> Iterator[tuple[Connection, duckdb.DuckDBPyConnection]]:
    """Connections of ours and of plain DuckDB to the tables of the SQL tests, and to `more`."""
    backend = FakeBackend(upper_or_length)
    with connect(backend, ledger=None, order=order) as con, duckdb.connect() as plain:
        con.database.execute(SETUP + more)
        plain.execute(SETUP + MACROS + more)
        yield con, plain


def check(
    wanted: Sequence[str], con: Connection, plain: duckdb.DuckDBPyConnection, *, ordered: bool
) -> None:
    """Each query gives plain DuckDB's rows, which need not be in its order unless one is asked."""
    assert wanted
    wrong = {}
    for query in wanted:
        sides = [con.sql(query).fetchall(), plain.execute(reference_sql(query)).fetchall()]
        if not ordered and " ORDER BY" not in query.rsplit(")", 1)[-1]:
            sides = [sorted(rows, key=repr) for rows in sides]
        if sides[0] != sides[1]:
            wrong[query] = sides
    if wrong:
        pytest.fail(
            "\n".join(f"{query}\n  {got}\n  {good}" for query, (got, good) in wrong.items())
        )
