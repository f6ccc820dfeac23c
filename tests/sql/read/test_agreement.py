"""What another parser reads as something else is refused before the first call."""

from __future__ import annotations

import duckdb
import pytest

from relquery.connection import Connection
from relquery.errors import QueryError, UnsupportedQueryError
from tests.cases import cases
from tests.sql.conftest import opened

TABLE = """CREATE TABLE t AS SELECT 1 AS i, 2 AS a, 'month' AS s, DATE '2026-01-10' AS d,
    '{"user.name": "x", "b": [1]}'::JSON AS j"""


@pytest.fixture(scope="module")
def asking() -> Connection:
    return opened(setup=TABLE)


@pytest.mark.parametrize("part", [part for (part,) in cases(__file__, "differ")])
def test_what_would_mean_something_else_is_refused_and_nothing_is_asked(
    part: str, asking: Connection
) -> None:
    query = f"SELECT {part}, LLM('up', i) FROM t"
    with pytest.raises(UnsupportedQueryError) as raised:
        asking.sql(query)
    if part != "#1":
        said = str(raised.value).splitlines()
        assert said[1] == f"yours: {query}"
        assert said[2].startswith("run:   SELECT ")
    for kept in (f"CREATE VIEW v AS {query}", f"CREATE MACRO m(i) AS {part} || LLM('up', i)"):
        with pytest.raises(QueryError):
            asking.sql(f"{kept}; SELECT 1")
    for whole in (f"CREATE TABLE u AS {query}", f"WITH z AS ({query}) SELECT * FROM z"):
        with pytest.raises(UnsupportedQueryError):
            asking.sql(whole)


@pytest.mark.parametrize("part", [part for (part,) in cases(__file__, "agree")])
def test_what_means_the_same_is_run_and_gives_what_duckdb_does(
    part: str, asking: Connection
) -> None:
    with duckdb.connect() as plain:
        plain.execute(TABLE)
        expected = plain.execute(f"SELECT {part} FROM t").fetchall()
    moments = "now()" in part
    (got,) = asking.sql(f"SELECT {part}, LLM('up', i) FROM t").fetchall()
    assert got[-1] == "1"
    assert moments or [got[:-1]] == expected


def test_a_setting_for_nulls_does_not_change_what_is_written() -> None:
    con = opened(setup="CREATE TABLE n AS SELECT * FROM (VALUES (NULL), (1), (2)) v(i)")
    con.sql("SET default_null_order = 'nulls_first'")
    for order, first in (("i NULLS LAST", 1), ("i", None), ("i DESC NULLS LAST", 2)):
        got = con.sql(f"SELECT i, LLM('up', 'x') FROM n ORDER BY {order} LIMIT 1").fetchall()
        assert got == [(first, "X")]
