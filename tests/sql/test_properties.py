"""Whatever the table and the order of sending, a query gives what the function gives per row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.config import ORDERS, Order
from relquery.connection import connect
from relquery.sql.inputs.inputs import distinct_rows
from tests.sql.fakes import FakeBackend

NAMES = st.lists(
    st.text(min_size=1, max_size=6).filter(lambda name: "\0" not in name),
    min_size=2,
    max_size=4,
    unique_by=str.lower,
)
CELLS = (
    st.none() | st.sampled_from(["a", "b", 'q"', "}\n", "🎉", "x\0y", "'"]) | st.text(max_size=9)
)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    names = [f"c{at} {name}" for at, name in enumerate(draw(NAMES))]
    rows = draw(st.integers(0, 12))
    column = st.lists(CELLS, min_size=rows, max_size=rows)
    return pa.table({name: pa.array(draw(column), pa.string()) for name in names})


def digest(query: str, fields: Mapping[str, Any]) -> str:
    """A number that depends on the query and on every field, not on the order of fields."""
    return str(sum(map(ord, query + repr(sorted(fields.items())))) % 7)


def answer(query: str, fields: Mapping[str, Any]) -> str | None:
    """What a call gives: NULL if all of its fields are."""
    return None if all(value is None for value in fields.values()) else digest(query, fields)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


ODD = pa.table({'c0 "x': ["a", None, "}\n", "a"], "c1 \n": ["x\0y", "'", None, "'"]})


@pytest.mark.parametrize(("order", "reverse"), [("tree", True), ("ggr", False)])
def test_rows_of_odd_texts_equal_those_of_the_function_computed_for_each(
    order: Order, reverse: bool
) -> None:
    check(ODD, order, reverse)


@pytest.mark.long
@given(tables(), st.sampled_from(ORDERS), st.booleans())
def test_results_equal_those_of_the_function_computed_for_every_row(
    table: pa.Table, order: Order, reverse: bool
) -> None:
    check(table, order, reverse)


def check(table: pa.Table, order: Order, reverse: bool) -> None:
    first, *others = table.column_names
    rows = table.to_pylist()
    answers = {
        "f": [answer("keep", {first: row[first]}) for row in rows],
        "p": [answer("tell", row) for row in rows],
        "row": list(range(len(rows))),
    }
    types = [pa.string(), pa.string(), pa.int64()]
    arrays = [pa.array(v, t) for v, t in zip(answers.values(), types, strict=True)]
    known = pa.table(dict(zip(answers, arrays, strict=True)))
    for name in table.column_names:
        known = known.append_column(name, table[name])

    def query(tell: str, number: str, keep: str) -> str:
        other = quoted(others[0])
        return (
            f"SELECT {other}, {tell} AS p, {number} * 2 AS n FROM t WHERE {keep} > '2' "
            f"AND coalesce({other}, '') != 'a' ORDER BY row"
        )

    call = "LLM('tell', * EXCLUDE (row))"
    with connect(FakeBackend(digest, reverse=reverse), ledger=None, order=order) as con:
        con.register("t", table.append_column("row", pa.array(answers["row"], pa.int64())))
        got = con.sql(query(call, call, f"LLM('keep', {quoted(first)})")).fetchall()
    with duckdb.connect() as plain:
        plain.register("t", known)
        wanted = plain.execute(query("p", "CAST(p AS DOUBLE)", "f")).fetchall()
    assert got == wanted


@given(
    st.integers(0, 4).flatmap(
        lambda width: st.lists(
            st.lists(st.integers(0, 3), min_size=width, max_size=width), max_size=20
        ).map(lambda rows: np.array(rows, dtype=np.int64).reshape(len(rows), width))
    )
)
def test_distinct_rows_are_numbered_by_first_appearance(codes: np.ndarray[Any, Any]) -> None:
    first, of_row = distinct_rows(codes)
    assert list(first) == sorted(first)
    assert len({tuple(codes[row]) for row in first}) == len(first)
    for row, distinct in enumerate(of_row):
        assert tuple(codes[row]) == tuple(codes[first[distinct]])
