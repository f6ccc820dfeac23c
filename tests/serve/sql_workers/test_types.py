"""A value of any type of DuckDB is answered so that it can be read again, or refused."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from relquery.connection import Connection, connect
from relquery.errors import QueryError
from relquery.serve.errors import as_http
from relquery.serve.sql_workers.jobs import as_arrow, as_json, lines_of, whole
from relquery.sql.result import Result
from tests.cases import cases
from tests.sql.fakes import FakeBackend

# By the name of the type in DuckDB's list of types. Nested ones are made of these.
VALUES: dict[str, list[str]] = dict(cases(__file__, "values"))
NESTED = {"ARRAY", "LIST", "MAP", "STRUCT", "TUPLE", "UNION"}
REFUSED = {"TYPE"}
QUICK = {"BLOB", "DOUBLE", "HUGEINT", "INTERVAL", "NULL", "TIME"}
FORMS = [
    "[VALUE, NULL]", "[[VALUE], [], NULL]", "[VALUE]::TYPE[1]",
    "{'a b': VALUE, 'c': {'d': VALUE}}", "row(VALUE, ())", "[row(VALUE)]", "MAP {'k': VALUE}",
    "MAP {1: [VALUE]}",
]  # fmt: skip
ALL = [(kind, value) for kind, values in VALUES.items() for value in values]


@pytest.fixture(scope="module")
def con() -> Iterator[Connection]:
    with connect(FakeBackend(lambda query, fields: "7"), ledger=None) as connection:
        yield connection


def answered(con: Connection, *values: str) -> list[dict[str, Any]]:
    """Objects of the lines that a client is sent, which are JSON."""
    result = con.sql(f"SELECT {', '.join(f'{value} AS a' for value in values)}")
    assert isinstance(result, Result)
    table = pa.ipc.open_stream(as_arrow(result.table)).read_all()
    assert table.shape == (1, len(values))
    return [json.loads(as_json(each)) for each in lines_of(result, con)]


def given(con: Connection, *values: str) -> list[Any]:
    """The values as a client reads them from JSON; as lines and in Arrow they can be read too."""
    found = answered(con, *values)
    assert [line["type"] for line in found] == ["columns", "rows", "report", "errors"]
    row: list[Any]
    (row,) = whole(iter(found))["rows"]
    return row


def rows_of(query: str) -> list[tuple[Any, ...]]:
    with duckdb.connect() as plain:
        return plain.execute(query).fetchall()


def test_every_type_that_duckdb_lists_has_a_value_here() -> None:
    kinds = {kind for (kind,) in rows_of("SELECT logical_type FROM duckdb_types()")}
    assert kinds == {*VALUES, *NESTED}


def test_duckdb_reads_each_value_again(con: Connection) -> None:
    kept = [pair for pair in ALL if pair[0] not in REFUSED]
    with duckdb.connect() as plain:
        for (kind, value), text in zip(kept, given(con, *(each for _, each in kept)), strict=True):
            (typed,) = plain.execute(f"SELECT typeof({value})").fetchone() or ()
            read, wanted, sent = f"CAST(? AS {typed})", value, text
            if kind in ("BLOB", "GEOMETRY"):
                sent, read = b64decode(text), "?::BLOB"
                wanted = f"ST_AsWKB({value})" if kind == "GEOMETRY" else value
            elif kind in ("NULL", "VARIANT"):
                sent, read = text if text is None else str(text), "?"
                wanted = f"({value})::VARCHAR"
            same = plain.execute(f"SELECT {read} IS NOT DISTINCT FROM ({wanted})", [sent])
            assert same.fetchall() == [(True,)], value


@pytest.mark.parametrize("kind", sorted(REFUSED))
def test_a_type_that_cannot_be_written_is_refused_by_name(kind: str, con: Connection) -> None:
    with pytest.raises(QueryError, match=kind) as caught:
        answered(con, *VALUES[kind])
    assert as_http(caught.value).status == 400


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=() if kind in QUICK else pytest.mark.long)
        for kind in sorted(VALUES.keys() - REFUSED)
    ],
)
def test_a_value_inside_others_is_written_as_alone(kind: str, con: Connection) -> None:
    for value in VALUES[kind]:
        typed = "INT" if kind == "NULL" else rows_of(f"SELECT typeof({value})")[0][0]
        forms = [each.replace("TYPE", typed).replace("VALUE", value) for each in FORMS]
        alone, in_union, *within = given(con, value, f"union_value(a := {value})", *forms)
        assert all(alone in leaves(found) for found in within), value
        assert (in_union is None) == (alone is None)


def test_odd_values_are_whole(con: Connection) -> None:
    odd: dict[str, Any] = dict(cases(__file__, "odd"))
    assert dict(zip(odd, given(con, *odd), strict=True)) == odd


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return leaves(list(value.values()))
    if isinstance(value, list):
        return [leaf for each in value for leaf in leaves(each)]
    return [value]
