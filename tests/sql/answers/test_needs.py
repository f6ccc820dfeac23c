"""A call is asked where its fields are known: an inner answer that was lost matters where read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from relquery.connection import Connection, connect
from relquery.errors import PartialResultWarning
from relquery.prompt import Answer, Finish
from tests.sql.fakes import FakeBackend

LOST = Answer(None, Finish.ERROR, "out of spice")


@pytest.fixture
def con() -> Iterator[Connection]:
    def answer(query: str, fields: Any) -> str | Answer:
        if query == "inner":
            return LOST if fields["id"] in (2, 3) else "in"
        return "out"

    with connect(FakeBackend(answer), ledger=None) as connection:
        connection.database.execute(
            "CREATE TABLE t AS SELECT * FROM (VALUES (1, true, 'a'), (2, true, 'b'), "
            "(3, false, 'c'), (4, false, NULL), (5, NULL, NULL)) v(id, flag, text)"
        )
        yield connection


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
    fields: list[tuple[str, list[int]]], con: Connection
) -> None:
    for field, asked in fields:
        query = f"SELECT {INNER} AS i, LLM('outer', {field}, id) AS o, id FROM t ORDER BY id"
        with pytest.warns(PartialResultWarning):
            result = con.sql(query)
        assert [row[2] for row in result.fetchall() if row[1] == "out"] == asked, field
        assert {error.row + 1 for error in result.errors} == {2, 3}
        assert {error.error for error in result.errors} == {"out of spice"}
