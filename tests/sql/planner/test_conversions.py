"""An answer that is no value where it is read is NULL there, and listed; it ends no query."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

from relquery.connection import Connection, connect
from relquery.errors import LateQueryError, PartialResultWarning
from relquery.prompt import Answer, Finish
from tests.sql.conftest import Lender, opened
from tests.sql.fakes import FakeBackend, Fields
from tests.sql.scripts import Script, scripts

ANSWERS = {1: "7", 2: "abc", 3: "2024-01-03", 4: '{"k": [7]}'}
TABLE = (
    "CREATE TABLE t AS SELECT * FROM (VALUES (1, DATE '2024-01-01', 7, 'x'), "
    "(2, DATE '2024-01-02', 0, 'x'), (3, DATE '2024-01-03', 1, 'y'), (4, NULL, NULL, 'y')) "
    "v(id, d, n, k)"
)
A = "LLM('?', id)"


def answer(query: str, fields: Fields) -> str:
    return ANSWERS[fields["id"]] if "id" in fields else f"{query}:{fields}"


@pytest.fixture(scope="module")
def lender() -> Iterator[Lender]:
    lender = Lender(answer, TABLE)
    yield lender
    lender.close()


@scripts(__file__)
def test_statements(script: Script, con: Connection, backend: FakeBackend) -> None:
    script.run(con, backend)


def test_a_value_has_the_type_of_its_cast(con: Connection) -> None:
    items = {
        f"{A}::DECIMAL(18,2)": "DECIMAL(18,2)",
        f"{A}::HUGEINT": "HUGEINT",
        f"{A}::DATE": "DATE",
        f"{A} * 2": "DOUBLE",
        A: "VARCHAR",
        f"nullif({A}, 7)": "VARCHAR",
        f"{A} = d": "BOOLEAN",
    }
    columns = ", ".join(f"{item} AS c{at}" for at, item in enumerate(items))
    for data in ("", " LIMIT 0"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PartialResultWarning)
            con.sql(f"CREATE OR REPLACE TABLE o AS SELECT {columns} FROM t{data}")
        described = [row[1] for row in con.sql("DESCRIBE o").fetchall()]
        assert described == list(items.values())


def test_an_error_after_calls_says_that_they_were_made_and_where_the_answers_are() -> None:
    late = "SELECT max(LLM('?', id))::DATE FROM t"
    for ledger, says in ((":memory:", "answers are in the ledger"), (None, "answers are not kept")):
        backend = FakeBackend(lambda query, fields: ANSWERS[fields["id"]])
        with connect(backend, ledger=ledger) as con:
            con.register("t", {"id": [1, 2]})
            with pytest.raises(LateQueryError, match=rf"abc.* after 2 calls were made\. .*{says}"):
                con.sql(late)
            assert con.sql("SELECT max(LLM('?', id)) FROM t").fetchall() == [("abc",)]
            assert len(backend.asked) == (2 if ledger else 4)


def test_a_list_or_struct_with_a_part_that_is_no_value_is_none() -> None:
    kinds = {"[1, x]": "INT[]", "{'a': x}": "STRUCT(a INT)", "[[1], [x]]": "INT[][]"}
    with connect(FakeBackend(lambda query, fields: query), ledger=None) as con:
        for answer, kind in kinds.items():
            with pytest.warns(PartialResultWarning, match=kind[:3]):
                result = con.sql(f"SELECT LLM($a)::{kind}", {"a": answer})
            assert result.fetchall() == [(None,)]
            assert len(result.errors) == 1


def test_items_that_are_several_columns_are_read() -> None:
    """`unnest` of structs gives a column per field."""
    with connect(FakeBackend(lambda query, fields: "UP")) as connection:
        for items, expected in (
            ("unnest([{'a': 1, 'b': x}], recursive := true), x", (1, "UP", "UP")),
            ("x AS y, unnest([{'a': x, 'b': 1}], recursive := true)", ("UP", "UP", 1)),
            ("unnest({'a': x, 'b': {'c': 2}}, recursive := true), 3 AS d", ("UP", 2, 3)),
        ):
            entry = f"WITH a AS (SELECT LLM('up', 1) AS x), b AS (SELECT {items} FROM a)"
            assert connection.sql(f"{entry} SELECT * FROM b").fetchall() == [expected]


INNER = "LLM('inner', id)"
ALL = [1, 2, 3, 4, 5]


FIELDS = [
    (INNER, [1, 4, 5]),
    (f"upper({INNER})", [1, 4, 5]),
    (f"CASE WHEN flag THEN {INNER} ELSE 'no' END", [1, 3, 4, 5]),
    (f"CASE WHEN flag THEN 'yes' ELSE {INNER} END", [1, 2, 4, 5]),
    (f"CASE WHEN {INNER} = 'in' THEN 'yes' ELSE 'no' END", [1, 4, 5]),
    (f"if(flag, {INNER}, text)", [1, 3, 4, 5]),
    (f"coalesce(text, {INNER})", ALL),
    (f"coalesce({INNER}, text)", [1, 4, 5]),
    (f"flag AND {INNER} = 'in'", [1, 3, 4, 5]),
    (f"flag OR {INNER} = 'in'", [1, 2, 4, 5]),
    (f"CASE WHEN flag THEN {INNER} END || CASE WHEN flag THEN 'x' ELSE {INNER} END", [1, 4, 5]),
    (f"CASE WHEN text = 'c' THEN 'x' WHEN text = 'b' THEN 'y' ELSE {INNER} END", ALL),
]


@pytest.mark.parametrize(
    "fields", [FIELDS[2::2] + FIELDS[9::2], pytest.param(FIELDS, marks=pytest.mark.long)]
)
def test_a_lost_answer_keeps_those_from_being_asked_that_read_it(
    fields: list[tuple[str, list[int]]],
) -> None:
    """An outer call is asked where its fields are known."""

    def answer(query: str, fields: Fields) -> str | Answer:
        if query == "inner":
            lost = Answer(None, Finish.ERROR, "out of spice")
            return lost if fields["id"] in (2, 3) else "in"
        return "out"

    table = (
        "CREATE TABLE t AS SELECT * FROM (VALUES (1, true, 'a'), (2, true, 'b'), "
        "(3, false, 'c'), (4, false, NULL), (5, NULL, NULL)) v(id, flag, text)"
    )
    with opened(FakeBackend(answer), table) as con:
        for field, asked in fields:
            query = f"SELECT {INNER} AS i, LLM('outer', {field}, id) AS o, id FROM t ORDER BY id"
            with pytest.warns(PartialResultWarning):
                result = con.sql(query)
            assert [row[2] for row in result.fetchall() if row[1] == "out"] == asked, field
            assert {error.row + 1 for error in result.errors} == {2, 3}
            assert {error.error for error in result.errors} == {"out of spice"}
