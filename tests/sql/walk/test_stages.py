"""A query makes few more calls than someone who knows every answer and asks what it depends on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from relquery.connection import Connection, connect
from relquery.errors import PartialResultWarning, RequestError
from relquery.prompt import Answer, Finish
from tests.sql.fakes import FakeBackend, Fields
from tests.sql.oracle import Oracle, Predicate, Row

ROWS = 2000
SHARES = {"rare": 0.1, "some": 0.3, "half": 0.5, "many": 0.8, "most": 0.95}


def share(*parts: Any) -> float:
    """A fixed number from 0 to 1 that looks random."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:6]) / 2**48


def holds(query: str, field: Any) -> bool:
    return share(query, field) < SHARES[query]


def answer(query: str, fields: Fields) -> str:
    (field,) = fields.values()
    if query in SHARES:
        return "Yes" if holds(query, field) else "No"
    return f"{share(query, field):.9f}"


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend(answer)


@pytest.fixture
def con(backend: FakeBackend) -> Iterator[Connection]:
    with connect(backend, ledger=None) as connection:
        connection.database.execute(
            f"CREATE TABLE t AS SELECT id, id * 7 % 1009 AS day, id * 13 % 97 AS kind, "
            f"'review ' || id % 700 AS text FROM range({ROWS}) r(id);"
            "CREATE TABLE kinds AS SELECT kind FROM range(97) r(kind)"
        )
        yield connection


def rows() -> list[Row]:
    return [
        {"id": n, "day": n * 7 % 1009, "kind": n * 13 % 97, "text": f"review {n % 700}"}
        for n in range(ROWS)
    ]


def on(query: str, field: str) -> Predicate:
    return Predicate(query, lambda row: row[field], lambda row: holds(query, row[field]))


def yes(query: str, field: str) -> str:
    return f"LLM('{query}', {field}) = 'Yes'"


def limited(oracle: Oracle) -> list[Row]:
    found = oracle.first(10, rows(), lambda row: oracle.all_of([on("some", "id")], row))
    oracle.ask("tell", [row["id"] for row in found])
    return found


def limited_after_others(oracle: Oracle) -> list[Row]:
    order = sorted(rows(), key=lambda row: (-row["day"], row["id"]))
    found = oracle.first(15, order, lambda row: oracle.all_of([on("rare", "id")], row))[5:]
    oracle.ask("tell", [row["id"] for row in found])
    return found


def limited_by_two(oracle: Oracle) -> list[Row]:
    both = [on("many", "id"), on("half", "text")]
    return oracle.first(20, rows(), lambda row: oracle.all_of(both, row))


def filtered(*predicates: Predicate) -> Callable[[Oracle], list[Row]]:
    return lambda oracle: [row for row in rows() if oracle.all_of(predicates, row)]


def either(*predicates: Predicate) -> Callable[[Oracle], list[Row]]:
    return lambda oracle: [row for row in rows() if oracle.one_of(predicates, row)]


def ordered(oracle: Oracle) -> list[Row]:
    oracle.ask("score", [row["text"] for row in rows()])
    found = sorted(rows(), key=lambda row: (answer("score", {"": row["text"]}), row["id"]))[:3]
    oracle.ask("tell", [row["id"] for row in found])
    return found


def best_of_each_kind(oracle: Oracle) -> list[Row]:
    oracle.ask("score", [row["id"] for row in rows() if row["kind"] < 3])
    found = []
    for kind in range(3):
        same = [row for row in rows() if row["kind"] == kind]
        found.append(min(same, key=lambda row: answer("score", {"": row["id"]})))
    oracle.ask("tell", [row["id"] for row in found])
    return sorted(found, key=lambda row: row["id"])


def first_of_each_kind(oracle: Oracle) -> list[Row]:
    found = sorted({row["kind"]: row for row in reversed(rows())}.values(), key=lambda r: r["kind"])
    oracle.ask("tell", [row["id"] for row in found])
    return found


def told_by_answer(oracle: Oracle) -> list[Row]:
    for row in rows():
        oracle.ask("some", [row["id"]])
        oracle.ask("good" if holds("some", row["id"]) else "bad", [row["id"]])
    return rows()


CASES = {
    f"SELECT id, LLM('tell', id) FROM t WHERE {yes('some', 'id')} LIMIT 10": limited,
    f"SELECT id, LLM('tell', id) FROM t WHERE {yes('rare', 'id')} "
    "ORDER BY day DESC LIMIT 10 OFFSET 5": limited_after_others,
    f"SELECT id FROM t JOIN kinds USING (kind) WHERE {yes('many', 'id')} AND {yes('half', 'text')} "
    "ORDER BY id LIMIT 20": limited_by_two,
    f"SELECT id FROM t WHERE {yes('most', 'id')} AND {yes('rare', 'id')}": filtered(
        on("rare", "id"), on("most", "id")
    ),
    f"SELECT id FROM t WHERE {yes('many', 'id')} AND {yes('some', 'text')} AND "
    f"{yes('half', 'kind')}": filtered(on("half", "kind"), on("some", "text"), on("many", "id")),
    f"SELECT id FROM t WHERE {yes('rare', 'id')} OR {yes('most', 'id')}": either(
        on("most", "id"), on("rare", "id")
    ),
    f"SELECT id FROM t WHERE kind < 50 AND {yes('half', 'id')} OR kind >= 50": lambda oracle: [
        row for row in rows() if row["kind"] >= 50 or oracle.all_of([on("half", "id")], row)
    ],
    "SELECT id, LLM('tell', id) FROM t ORDER BY LLM('score', text), id LIMIT 3": ordered,
    "SELECT id, LLM('tell', id) FROM t WHERE kind < 3 "
    "QUALIFY row_number() OVER (PARTITION BY kind ORDER BY LLM('score', id)) = 1 "
    "ORDER BY id": best_of_each_kind,
    "SELECT DISTINCT ON (kind) id, LLM('tell', id) FROM t ORDER BY kind, id": first_of_each_kind,
    f"SELECT id, CASE WHEN {yes('some', 'id')} THEN LLM('good', id) ELSE LLM('bad', id) END "
    "FROM t": told_by_answer,
}


@pytest.mark.parametrize("query", CASES)
def test_calls_are_at_most_1_3_times_those_that_the_result_depends_on(query, con, backend):
    oracle = Oracle()
    wanted = CASES[query](oracle)
    assert [row[0] for row in con.sql(query).fetchall()] == [row["id"] for row in wanted]
    assert len(backend.asked) <= 1.3 * len(oracle.asked)


def test_a_limit_over_a_filter_that_three_in_ten_rows_pass_asks_60_rows_at_most(con, backend):
    result = con.sql(f"SELECT id FROM t WHERE {yes('some', 'id')} LIMIT 10")
    assert len(result) == 10
    assert len(backend.asked) <= 60


def test_a_stage_that_runs_in_batches_is_one_stage_with_the_sums(con, backend):
    report = con.sql(f"SELECT id, LLM('tell', id) FROM t WHERE {yes('some', 'id')} LIMIT 10").report
    assert [stage.name for stage in report.stages] == ["filter 1", "projection 1"]
    assert [stage.calls for stage in report.stages] == [
        backend.queries.count("some"),
        backend.queries.count("tell"),
    ]
    assert report.stages[0].rows == report.stages[0].calls
    sent = [one for one in backend.asked if one.query == "some"]
    characters = sum(len(str(span.content)) for one in sent for span in one.prompt)
    assert report.stages[0].prompt_tokens == characters


def test_progress_counts_on_over_the_batches_of_a_stage(con):
    said: list[tuple[str, int, int]] = []
    query = f"SELECT id FROM t WHERE {yes('some', 'id')} LIMIT 10"
    result = con.sql(query, progress=lambda *each: said.append(each))
    answered = [done for _, done, _ in said]
    assert answered == sorted(answered)
    assert said[-1] == ("filter 1", result.report.calls, result.report.calls)
    assert all(done <= total for _, done, total in said)


def test_a_row_asked_twice_in_different_batches_is_one_call(con, backend):
    con.sql(f"SELECT id FROM t WHERE {yes('rare', 'kind')} LIMIT 300")
    assert len(backend.asked) <= 97
    assert len({request.fields["kind"] for request in backend.asked}) == len(backend.asked)


def test_limit_0_asks_nothing(con, backend):
    assert con.sql(f"SELECT id FROM t WHERE {yes('some', 'id')} LIMIT 0").fetchall() == []
    assert backend.asked == []


def test_a_limit_beyond_the_rows_that_pass_asks_about_all(con, backend):
    result = con.sql(f"SELECT id FROM t WHERE {yes('rare', 'id')} LIMIT 1000 OFFSET 3")
    assert len(result) == sum(holds("rare", n) for n in range(ROWS)) - 3
    assert len(backend.asked) == ROWS


def test_a_share_of_the_rows_cuts_the_select_list_after_the_filters(con, backend):
    con.sql(f"SELECT LLM('tell', id) FROM t WHERE {yes('some', 'id')} LIMIT 10%")
    assert backend.queries.count("some") == ROWS
    passed = sum(holds("some", n) for n in range(ROWS))
    assert backend.queries.count("tell") == passed // 10


def test_an_order_that_fails_for_a_row_that_the_filter_drops_is_computed_after_it(con, backend):
    order = "if(id % 2 = 0, 1, error('odd'))"
    backend.function = lambda query, fields: "Yes" if fields["id"] % 2 == 0 else "No"
    result = con.sql(f"SELECT id FROM t WHERE {yes('some', 'id')} ORDER BY {order}, id LIMIT 2")
    assert result.fetchall() == [(0,), (2,)]


def test_a_row_that_cannot_be_judged_counts_as_one_that_does_not_pass(con, backend):
    def fails(query: str, fields: Fields) -> str | Answer:
        return Answer(None, Finish.ERROR, "no") if fields["id"] < 5 else "Yes"

    backend.function = fails
    query = f"SELECT id FROM t WHERE {yes('some', 'id')} LIMIT 3"
    with pytest.warns(PartialResultWarning):
        result = con.sql(query)
    assert result.fetchall() == [(5,), (6,), (7,)]
    assert [(error.stage, error.row) for error in result.errors] == [
        ("filter 1", row) for row in range(5)
    ]
    assert result.report.errors == 5
    with pytest.raises(RequestError, match="filter 1 for id = '0': no"):
        con.sql(query, on_error="raise")


def test_the_ledger_answers_a_longer_limit_as_far_as_it_has_been_asked(backend):
    with connect(backend) as con:
        con.register("t", {"id": list(range(ROWS))})
        query = f"SELECT id FROM t WHERE {yes('some', 'id')} LIMIT "
        con.sql(f"{query} 10")
        first = len(backend.asked)
        report = con.sql(f"{query} 20").report
        assert report.ledger_hits == first
        assert len(backend.asked) == first + report.calls


def test_having_with_a_call_goes_before_the_other_calls_about_groups(con, backend):
    result = con.sql(
        f"SELECT kind, LLM('tell', kind) FROM t GROUP BY kind HAVING {yes('some', 'kind')} "
        "ORDER BY kind LIMIT 4"
    )
    assert len(result) == backend.queries.count("tell") == 4
    assert backend.queries.count("some") < 40


def test_invalid_answers_are_told_only_of_rows_that_are_returned(con, backend):
    backend.function = lambda query, fields: "Yes" if query == "some" else "many"
    with pytest.warns(PartialResultWarning, match="^3 LLM values"):
        result = con.sql(f"SELECT LLM('tell', id)::INT FROM t WHERE {yes('some', 'id')} LIMIT 3")
    assert [error.row for error in result.errors] == [0, 1, 2]


def test_an_interrupted_query_keeps_the_answers_of_all_batches(backend):
    def stops(query: str, fields: Fields) -> str:
        if fields["id"] == 30:
            raise KeyboardInterrupt
        return answer(query, fields)

    with connect(backend) as con:
        con.register("t", {"id": list(range(ROWS))})
        query = f"SELECT id FROM t WHERE {yes('rare', 'id')} LIMIT 10"
        backend.function = stops
        with pytest.raises(KeyboardInterrupt):
            con.sql(query)
        asked = len(backend.asked) - 1
        backend.function = answer
        report = con.sql(query).report
        assert report.ledger_hits == asked
