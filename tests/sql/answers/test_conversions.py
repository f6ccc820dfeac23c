"""An answer that is no value where it is read is NULL there, and listed; it ends no query."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from datetime import date, datetime
from typing import Any

import duckdb
import pytest

from relquery.connection import Connection, connect
from relquery.errors import LateQueryError, PartialResultWarning, QueryError, RequestError
from relquery.sql.result import Result
from tests.sql.fakes import Asked, FakeBackend

ANSWERS = {1: "7", 2: "abc", 3: "2024-01-03", 4: '{"k": [7]}'}


@pytest.fixture
def con() -> Iterator[Connection]:
    def answer(query: str, fields: Any) -> str:
        return ANSWERS[fields["id"]] if "id" in fields else f"{query}:{fields}"

    with connect(FakeBackend(answer), ledger=None) as connection:
        connection.database.execute(
            "CREATE TABLE t AS SELECT * FROM (VALUES (1, DATE '2024-01-01', 7, 'x'), "
            "(2, DATE '2024-01-02', 0, 'x'), (3, DATE '2024-01-03', 1, 'y'), (4, NULL, NULL, 'y')) "
            "v(id, d, n, k)"
        )
        yield connection


def run(con: Connection, query: str) -> tuple[list[tuple[Any, ...]], list[int]]:
    """The rows, and the ids of those with an error."""
    result = quietly(con, query)
    return result.fetchall(), sorted(error.row + 1 for error in result.errors)


def own_asked(con: Connection) -> list[Asked]:
    assert isinstance(con.backend, FakeBackend)
    return con.backend.asked


def quietly(con: Connection, query: str) -> Result:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PartialResultWarning)
        return con.sql(query)


A = "LLM('?', id)"
NO = [1, 2, 3, 4]  # ids
PLACES: list[tuple[str, list[Any], list[int]]] = [
    # casts
    (f"{A}::INT", [7, None, None, None], [2, 3, 4]),
    (f"CAST({A} AS DATE)", [None, None, date(2024, 1, 3), None], [1, 2, 4]),
    (f"{A}::JSON", ["7", None, None, '{"k": [7]}'], [2, 3]),
    (f"{A}::VARCHAR", list(ANSWERS.values()), []),
    (f"TRY_CAST({A} AS INT)", [7, None, None, None], []),
    (f"coalesce({A}::INT, 0)", [7, 0, 0, 0], [2, 3, 4]),
    (f"replace({A}, 'abc', '8')::INT", [7, 8, None, None], [3, 4]),
    (f"CASE WHEN id < 3 THEN {A} ELSE '9' END::INT", [7, None, 9, 9], [2]),
    (f"CASE WHEN id = 1 THEN {A}::INT ELSE n END", [7, 0, 1, None], []),
    # comparisons
    (f"{A} = d", [None, None, True, None], [1, 2, 4]),
    (f"{A} IN (n, 8)", [True, None, None, None], [2, 3, 4]),
    (f"{A} IS DISTINCT FROM n", [False, True, True, False], [2, 3, 4]),
    (f"{A} > 3", [True, None, None, None], [2, 3, 4]),
    (f"CASE {A} WHEN 7 THEN 'y' ELSE 'n' END", ["y", "n", "n", "n"], [2, 3, 4]),
    (f"CASE n WHEN {A} THEN 'y' ELSE 'n' END", ["y", "n", "n", "n"], [2, 3, 4]),
    (f"nullif({A}, 7)", [None, "abc", "2024-01-03", '{"k": [7]}'], [2, 3, 4]),
    (f"{A} = 'abc'", [False, True, False, False], []),
    (f"n = 7 AND {A} = n", [True, False, False, None], [4]),
    (f"n < 2 OR {A} = n", [True, True, True, None], [4]),
    # numbers
    (f"coalesce({A}, 0) * 2", [14.0, 0, 0, 0], [2, 3, 4]),
    # expressions that fail
    (f"strptime({A}, '%Y-%m-%d')", [None, None, datetime(2024, 1, 3), None], [1, 2, 4]),
    (f"{A} ->> '$.k[0]'", [None, None, None, "7"], [2, 3]),
    (f"json_array_length({A}, '$.k')", [None, None, None, 1], [2, 3]),
    (f"({A} ->> '$.k[0]')::INT", [None, None, None, 7], [2, 3]),
    (f"{A}::TINYINT * 100::TINYINT", [None, None, None, None], [1, 2, 3, 4]),
    (f"list_transform([{A}], lambda x: x::INT)", [[7], None, None, None], [2, 3, 4]),
]
MORE_PLACES: list[tuple[str, list[Any], list[int]]] = [
    (f"{A}::TIMESTAMP", [None, None, datetime(2024, 1, 3), None], [1, 2, 4]),
    (f"{A}::BOOLEAN", [None] * 4, NO),
    (f"{A}::INTERVAL::VARCHAR", ["00:00:07", None, None, None], [2, 3, 4]),
    (f"(({A}))::INT + 1", [8, None, None, None], [2, 3, 4]),
    (f"{A}::INT::VARCHAR", ["7", None, None, None], [2, 3, 4]),
    (f"coalesce({A}, 'x')::INT", [7, None, None, None], [2, 3, 4]),
    (f"({A} || '')::INT", [7, None, None, None], [2, 3, 4]),
    (f"length({A})::TINYINT", [1, 3, 10, 10], []),
    (f"CASE WHEN id > 1 THEN {A}::INT END", [None, None, None, None], [2, 3, 4]),
    (f"{A} <> n", [False, None, None, None], [2, 3, 4]),
    (f"{A} = n::BIGINT", [True, None, None, None], [2, 3, 4]),
    (f"{A} IN (7, 8)", [True, None, None, None], [2, 3, 4]),
    (f"{A} IS NOT DISTINCT FROM 7", [True, False, False, False], [2, 3, 4]),
    (f"{A} BETWEEN 1 AND 9", [True, None, None, None], [2, 3, 4]),
    (f"CASE {A} WHEN n THEN 'y' ELSE 'n' END", ["y", "n", "n", "n"], [2, 3, 4]),
    (f"CASE WHEN {A} = n THEN 'y' ELSE 'n' END", ["y", "n", "n", "n"], [2, 3, 4]),
    (f"nullif(n, {A})", [None, 0, 1, None], [2, 3, 4]),
    (f"{A} = (SELECT max(d) FROM t)", [None, None, True, None], [1, 2, 4]),
    (f"length({A}) = n", [False, False, False, None], []),
    (f"{A} + n", [14.0, None, None, None], [2, 3, 4]),
    (f"round({A}) / 2", [3.5, None, None, None], [2, 3, 4]),
    (f"length({A} -> '$.k')", [None, None, None, 3], [2, 3]),
    (f"coalesce({A} ->> 'k', 'none')", ["none", "none", "none", "[7]"], [2, 3]),
    (f"[{A}::INT]", [[7], [None], [None], [None]], [2, 3, 4]),
]


@pytest.mark.parametrize("places", [PLACES, pytest.param(MORE_PLACES, marks=pytest.mark.long)])
def test_what_is_no_value_is_null_with_a_row_error(
    places: list[tuple[str, list[Any], list[int]]], con: Connection
) -> None:
    for place, values, failed in places:
        got = run(con, f"SELECT {place} FROM t ORDER BY id")
        assert got == ([(one,) for one in values], failed), place


@pytest.mark.parametrize(
    "places", [PLACES[::6], pytest.param(PLACES + MORE_PLACES, marks=pytest.mark.long)]
)
def test_in_a_subquery_and_in_where_it_is_the_same(
    places: list[tuple[str, list[Any], list[int]]], con: Connection
) -> None:
    for place, values, failed in places:
        inside = f"SELECT id, {place} AS v FROM t"
        got = run(con, f"SELECT v FROM ({inside}) ORDER BY id")
        assert got == ([(value,) for value in values], failed), place
        kept = [(at,) for at, value in enumerate(values, 1) if value is None]
        got = run(con, f"SELECT id FROM t WHERE ({place}) IS NULL ORDER BY id")
        assert got == (kept, failed), place


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
    for data in ("", " WITH NO DATA"):
        quietly(con, f"CREATE OR REPLACE TABLE o AS SELECT {columns} FROM t{data}")
        described = [row[1] for row in con.sql("DESCRIBE o").fetchall()]
        assert described == list(items.values())


CLAUSES: list[tuple[str, list[Any], list[int]]] = [
    (f"SELECT sum({A}::BIGINT), count(*) FROM t", [(7, 4)], [2, 3, 4]),
    (f"SELECT avg({A}) FROM t", [(7.0,)], [2, 3, 4]),
    (f"SELECT max({A}::DATE) FILTER (WHERE k = 'y') FROM t", [(date(2024, 1, 3),)], [4]),
    (f"SELECT {A}::INT AS v, count(*) FROM t GROUP BY v ORDER BY v", [(7, 1), (None, 3)],
     [2, 3, 4]),
    (f"SELECT count(*) FROM t GROUP BY {A}::INT ORDER BY 1", [(1,), (3,)], [2, 3, 4]),
    (f"SELECT id, {A}::INT, count(*) FROM t GROUP BY id ORDER BY id",
     [(1, 7, 1), (2, None, 1), (3, None, 1), (4, None, 1)], [2, 3, 4]),
    (f"SELECT id, {A} ->> '$.k[0]', max(n) FROM t GROUP BY id ORDER BY id",
     [(1, None, 7), (2, None, 0), (3, None, 1), (4, "7", None)], [2, 3]),
    (f"SELECT id, upper({A} ->> '$.k')::JSON ->> 0 || max(n) FROM t GROUP BY id HAVING id > 2 "
     "ORDER BY id", [(3, None), (4, None)], [1]),
    (f"SELECT id FROM t GROUP BY id HAVING {A} = max(d) ORDER BY id", [(3,)], [1, 2, 4]),
    (f"SELECT sum({A}::INT) OVER (ORDER BY id) FROM t ORDER BY id", [(7,)] * 4, [2, 3, 4]),
    (f"SELECT id FROM t QUALIFY row_number() OVER (ORDER BY {A}::INT, id) = 1", [(1,)],
     [2, 3, 4]),
    (f"SELECT id FROM t ORDER BY {A}::INT NULLS FIRST, id", [(2,), (3,), (4,), (1,)],
     [2, 3, 4]),
    (f"SELECT DISTINCT {A}::INT AS v FROM t ORDER BY v", [(7,), (None,)], [2, 3, 4]),
    (f"SELECT d FROM t WHERE id = 3 UNION ALL SELECT {A}::DATE FROM t WHERE id > 2",
     [(date(2024, 1, 3),), (date(2024, 1, 3),), (None,)], [2]),
    (f"SELECT unnest(string_split({A}, '-'))::INT FROM t WHERE id = 3", [(2024,), (1,), (3,)],
     []),
    (f"SELECT {A}::INT * random() * 0 FROM t ORDER BY id", [(0.0,), (None,), (None,), (None,)],
     [2, 3, 4]),
]  # fmt: skip


@pytest.mark.parametrize("places", [CLAUSES[::2], pytest.param(CLAUSES, marks=pytest.mark.long)])
def test_so_it_is_in_every_clause(
    places: list[tuple[str, list[Any], list[int]]], con: Connection
) -> None:
    for query, rows, failed in places:
        assert run(con, query) == (rows, failed), query


def test_a_column_that_fails_fails_as_ever_and_before_any_call(con: Connection) -> None:
    with pytest.raises(QueryError, match="'x'"):
        con.sql(f"SELECT {A} FROM t WHERE k::INT = 1")
    assert not own_asked(con)


# --- what a bad answer says ---


def test_a_row_error_says_what_the_place_needs(con: Connection) -> None:
    for place, message in (
        (f"{A}::BIGINT", "The answer is 'abc'; the query needs a number (BIGINT) here. Ask for "
         "just a number in the prompt, or pass labels := ['1', '2', ...]."),
        (f"{A} * 2", "The answer is 'abc'; the query needs a number here. Ask for just a number "
         "in the prompt, or pass labels := ['1', '2', ...]."),
        (f"{A} = d", "The answer is 'abc'; the query needs a value of type DATE here. Ask for just "
         "that in the prompt."),
        (f"({A} || '!')::DATE", "LLM('?', id) || '!' is 'abc!'; the query needs a value of type "
         "DATE here. Ask for just that in the prompt."),
        (f"{A} ->> '$.k'", "LLM('?', id) ->> '$.k' fails for the answer 'abc'. Ask for another "
         "format in the prompt."),
    ):  # fmt: skip
        (error,) = quietly(con, f"SELECT {place} FROM t WHERE id = 2").errors
        assert (error.error, error.text, error.inputs) == (message, "abc", {"id": "2"})
        assert (error.stage, error.row, error.attempts) == ("projection 1", 0, 1)


def test_a_row_has_one_error_for_a_call_whatever_many_places_read_it(con: Connection) -> None:
    result = quietly(con, f"SELECT {A}::INT, {A} + 1, {A} = d FROM t WHERE {A} <> 'x' AND id = 2")
    assert [error.stage for error in result.errors] == ["filter 1"]
    assert [stage.errors for stage in result.report.stages] == [1]


def test_on_error_raise_stops_at_the_first(con: Connection) -> None:
    with pytest.raises(
        RequestError, match="for id = '1': The answer is '7'; the query needs a val"
    ):
        con.sql(f"SELECT {A}::DATE FROM t", on_error="raise")


# --- INSERT ---


D = date(2024, 1, 3)
INSERTS = [
    (f"INSERT INTO o(d) SELECT {A} FROM t", [(D, None), *[(None, None)] * 3], [1, 2, 4]),
    (f"INSERT INTO o SELECT {A}, id FROM t", [(D, 3), (None, 1), (None, 2), (None, 4)], [1, 2, 4]),
    (f"INSERT INTO o (SELECT {A}, n FROM t WHERE id = 3)", [(D, 1)], []),
    (f"INSERT INTO o BY NAME SELECT {A} AS n FROM t", [(None, 7), *[(None, None)] * 3], [2, 3, 4]),
    (f"INSERT INTO o SELECT d, {A} * 100 FROM t WHERE id = 1", [(date(2024, 1, 1), None)], [1]),
    (f"INSERT INTO o SELECT DISTINCT {A}, 1 FROM t ORDER BY 1 LIMIT 2", [(D, 1), (None, 1)],
     [1, 2, 4]),
    (f"INSERT INTO o SELECT {A}, count(*) FROM t GROUP BY id",
     [(D, 1), (None, 1), (None, 1), (None, 1)], [1, 2, 4]),
    (f"INSERT INTO o SELECT {A}, 1 FROM t WHERE id = 2 UNION ALL SELECT {A}, 2 FROM t WHERE id = 3",
     [(D, 2), (None, 1)], [1]),
    (f"INSERT INTO o SELECT upper({A}), n FROM t WHERE id > 2", [(D, 1), (None, None)], [2]),
]  # fmt: skip


@pytest.mark.parametrize("inserts", [INSERTS[::2], pytest.param(INSERTS, marks=pytest.mark.long)])
def test_an_answer_that_is_no_value_of_its_column_is_null_there(
    inserts: list[tuple[str, list[Any], list[int]]], con: Connection
) -> None:
    for statement, rows, failed in inserts:
        con.sql("CREATE OR REPLACE TABLE o(d DATE, n TINYINT)")
        assert run(con, statement) == ([(len(rows),)], failed), statement
        assert con.sql("FROM o ORDER BY ALL").fetchall() == rows, statement


def test_another_column_that_fits_no_type_stops_the_insert_before_its_calls(
    con: Connection,
) -> None:
    con.sql("CREATE TABLE o(d DATE, n TINYINT)")
    with pytest.raises(QueryError, match="'y'"):
        con.sql(f"INSERT INTO o SELECT {A}, k FROM t WHERE id = 3")
    assert not own_asked(con)


# --- what only the run can find ---


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


# --- what an outer call sees ---


def test_an_outer_call_sees_what_sql_says(con: Connection) -> None:
    inner = f"CASE WHEN {A} > 3 THEN 'many' ELSE 'few' END"
    rows, failed = run(con, f"SELECT LLM('say', {inner}) FROM t ORDER BY id")
    assert [row[0].split(": ")[-1] for row in rows] == ["'many'}", "'few'}", "'few'}", "'few'}"]
    assert failed == [2, 3, 4]


def test_an_outer_call_is_asked_about_null_where_its_input_is_no_value(con: Connection) -> None:
    rows, failed = run(con, f"SELECT LLM('say', {A}::INT) FROM t WHERE id < 3 ORDER BY id")
    assert [row[0].split(": ")[-1] for row in rows] == ["7}", "None}"]
    assert failed == [2]


def test_answers_in_any_type_equal_those_of_the_same_text_in_a_column(con: Connection) -> None:
    with duckdb.connect() as plain:
        plain.execute("CREATE TABLE t AS SELECT * FROM (VALUES (1, '7'), (2, '9')) v(id, a)")
        query = "SELECT {0}::INT + 1, {0}::DECIMAL(9,2), {0} = id, {0}::JSON FROM t WHERE id = 1"
        wanted = plain.execute(query.format("a")).fetchall()
    assert con.sql(query.format(A)).fetchall() == wanted


def test_a_list_or_struct_with_a_part_that_is_no_value_is_none() -> None:
    kinds = {"[1, x]": "INT[]", "{'a': x}": "STRUCT(a INT)", "[[1], [x]]": "INT[][]"}
    with connect(FakeBackend(lambda query, fields: query), ledger=None) as con:
        for answer, kind in kinds.items():
            with pytest.warns(PartialResultWarning, match=kind[:3]):
                result = con.sql(f"SELECT LLM($a)::{kind}", {"a": answer})
            assert result.fetchall() == [(None,)]
            assert len(result.errors) == 1
