"""Whatever an expression does with answers: DuckDB's value where it has one, else a row error."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.connection import Connection, connect
from relquery.errors import PartialResultWarning
from tests.sql.fakes import FakeBackend

pytestmark = pytest.mark.long

# Texts that DuckDB and the rule for answers read alike.
ANSWERS = ["7", "abc", "2024-01-03", "4.5", "true", '{"k": [7]}', "99999999999", "", "[1, 2]"]
TABLE = (
    "CREATE TABLE t AS SELECT id, id % 3 = 0 AS flag, if(id % 2 = 0, NULL, 'x') AS s, id AS n, "
    "DATE '2024-01-01' + id::INT AS day, id / 2.0 AS f, id::DECIMAL(9, 2) AS dec, "
    f"id % 2 = 0 AS yes FROM range({len(ANSWERS)}) r(id)"
)
KINDS = ["INTEGER", "TINYINT", "DOUBLE", "DECIMAL(9, 2)", "DATE", "TIMESTAMP", "BOOLEAN", "JSON",
         "INTERVAL", "UUID", "INTEGER[]", "VARCHAR"]  # fmt: skip
NUMBERS = ["n", "f", "dec"]
TYPED = [*NUMBERS, "day", "yes"]
A = "{a}"


def one_of(*forms: str) -> st.SearchStrategy[str]:
    return st.sampled_from(forms)


TEXTS = st.recursive(
    st.just(A),
    lambda text: st.one_of(
        st.builds("({} || s)".format, text),
        st.builds("upper({})".format, text),
        st.builds("coalesce(s, {})".format, text),
        st.builds("coalesce({}, s)".format, text),
        st.builds("CASE WHEN flag THEN {} ELSE s END".format, text),
        st.builds("CASE n WHEN 1 THEN {} WHEN 2 THEN '7' ELSE {} END".format, text, text),
        st.builds("CAST(CAST({} AS {}) AS VARCHAR)".format, text, st.sampled_from(KINDS)),
        st.builds("nullif({}, s)".format, text),
        st.builds("({} ->> '$.k[0]')".format, text),
    ),
    max_leaves=3,
)
CONDITIONS = st.one_of(
    st.builds("({} {} {})".format, TEXTS, one_of("=", "<>", "IS DISTINCT FROM"),
              st.sampled_from(TYPED)),
    st.builds("({} IN ({}, 7))".format, TEXTS, st.sampled_from(NUMBERS)),
    st.builds("({} IN ('7', s))".format, TEXTS),
    st.builds("(CAST({} AS {}) IS NULL)".format, TEXTS, st.sampled_from(KINDS)),
    st.builds("({} LIKE 'a%')".format, TEXTS),
)  # fmt: skip
VALUES = st.one_of(
    TEXTS,
    CONDITIONS,
    st.builds("CAST({} AS {})".format, TEXTS, st.sampled_from(KINDS)),
    st.builds("coalesce(CAST({} AS INTEGER), n)".format, TEXTS),
    st.builds("CASE WHEN {} THEN 'yes' ELSE 'no' END".format, CONDITIONS),
    st.builds("CASE WHEN {} THEN CAST({} AS INTEGER) ELSE n END".format, CONDITIONS, TEXTS),
    st.builds("CASE {} WHEN {} THEN 1 ELSE 2 END".format, TEXTS, st.sampled_from(TYPED)),
    st.builds("CAST({} AS TINYINT) * CAST(n + 100 AS TINYINT)".format, TEXTS),
    st.builds("strptime({}, '%Y-%m-%d')".format, TEXTS),
    st.builds("[CAST({} AS INTEGER), length({})]".format, TEXTS, TEXTS),
    st.builds("json_extract({}, '$.k')".format, TEXTS),
)
SHAPES = [
    "SELECT id, CAST({value} AS VARCHAR) FROM t ORDER BY id",
    "SELECT id, CAST(v AS VARCHAR) FROM (SELECT id, {value} AS v FROM t) ORDER BY id",
    "SELECT id, CAST({value} AS VARCHAR) FROM (SELECT *, {call} AS a FROM t) ORDER BY id",
    "WITH z AS (SELECT *, {call} AS a FROM t) SELECT id, max(CAST({value} AS VARCHAR)) FROM z "
    "GROUP BY id ORDER BY id",
    "SELECT id, CAST(min({value}) AS VARCHAR) FROM t GROUP BY id ORDER BY id",
]
CALL = "LLM('?', id)"


@pytest.fixture(scope="module")
def sides() -> Iterator[tuple[Connection, duckdb.DuckDBPyConnection]]:
    backend = FakeBackend(lambda query, fields: ANSWERS[fields["id"]])
    with connect(backend) as con, duckdb.connect() as plain:
        con.database.execute(TABLE)
        plain.execute(TABLE)
        plain.execute(f"CREATE TABLE z AS SELECT *, {ANSWERS}[id + 1] AS a FROM t")
        yield con, plain


def by_duckdb(value: str, plain: duckdb.DuckDBPyConnection) -> dict[int, Any]:
    """The value in each row in which it does not fail; row by row, as one failure ends a query."""
    found = {}
    for row in range(len(ANSWERS)):
        query = f"SELECT CAST({value.format(a='a')} AS VARCHAR) FROM z WHERE id = {row}"
        try:
            found[row] = plain.execute(query).fetchall()[0][0]
        except (
            duckdb.ConversionException,
            duckdb.InvalidInputException,
            duckdb.OutOfRangeException,
        ):
            continue
    return found


@given(value=VALUES, shape=st.sampled_from(SHAPES))
def test_a_value_is_duckdbs_or_its_row_has_an_error(
    sides: tuple[Connection, duckdb.DuckDBPyConnection], value: str, shape: str
) -> None:
    con, plain = sides
    wanted = by_duckdb(value, plain)
    outer = "{call}" in shape
    query = shape.format(value=value.format(a="a" if outer else CALL), call=CALL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PartialResultWarning)
        result = con.sql(query)
    failed = {error.row for error in result.errors}
    assert failed == set(range(len(ANSWERS))) - set(wanted)
    got = dict(result.fetchall())
    assert {row: got[row] for row in wanted} == wanted
