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


@pytest.fixture(scope="module")
def shared() -> Iterator[Connection]:
    with connect(FakeBackend(answer), ledger=None) as connection:
        connection.database.execute(
            f"CREATE TABLE t AS SELECT id, id * 7 % 1009 AS day, id * 13 % 97 AS kind, "
            f"'review ' || id % 700 AS text FROM range({ROWS}) r(id);"
            "CREATE TABLE kinds AS SELECT kind FROM range(97) r(kind)"
        )
        yield connection


@pytest.fixture
def backend(shared: Connection) -> FakeBackend:
    """As new."""
    assert isinstance(shared.backend, FakeBackend)
    shared.backend.function = answer
    shared.backend.asked.clear()
    return shared.backend


@pytest.fixture
def con(shared: Connection, backend: FakeBackend) -> Connection:
    return shared


def rows() -> list[Row]:
    return [
        {"id": n, "day": n * 7 % 1009, "kind": n * 13 % 97, "text": f"review {n % 700}"}
        for n in range(ROWS)
    ]


def on(query: str, field: str) -> Predicate:
    return Predicate(query, lambda row: row[field], lambda row: holds(query, row[field]))


def yes(query: str, field: str) -> str:
    return f"LLM('{query}', {field}) = 'Yes'"


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


CASES: dict[str, Callable[[Oracle], list[Row]]] = {
    f"SELECT id, LLM('tell', id) FROM t WHERE {yes('rare', 'id')} "
    "ORDER BY day DESC LIMIT 10 OFFSET 5": limited_after_others,
    f"SELECT id FROM t JOIN kinds USING (kind) WHERE {yes('many', 'id')} AND {yes('half', 'text')} "
    "ORDER BY id LIMIT 20": limited_by_two,
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


QUICK = [0, 1, 2, 3, 6]


@pytest.mark.parametrize(
    "query",
    [pytest.param(query, marks=[] if at in QUICK else pytest.mark.long)
     for at, query in enumerate(CASES)],
)  # fmt: skip
def test_calls_are_at_most_1_3_times_those_that_the_result_depends_on(
    query: str, con: Connection, backend: FakeBackend
) -> None:
    oracle = Oracle()
    wanted = CASES[query](oracle)
    assert [row[0] for row in con.sql(query).fetchall()] == [row["id"] for row in wanted]
    assert len(backend.asked) <= 1.3 * len(oracle.asked)


def test_a_stage_that_runs_in_batches_is_one_stage(con: Connection, backend: FakeBackend) -> None:
    said: list[tuple[str, int, int]] = []
    query = f"SELECT id, LLM('tell', id) FROM t WHERE {yes('some', 'id')} LIMIT 10"
    result = con.sql(query, progress=lambda *each: said.append(each))
    filtered, projected = result.report.stages
    assert (filtered.name, projected.name) == ("filter 1", "projection 1")
    sent = [one for one in backend.asked if one.query == "some"]
    assert (filtered.calls, projected.calls) == (len(sent), 10)
    assert filtered.rows == filtered.calls <= 60  # three in ten rows pass
    characters = sum(len(str(span.content)) for one in sent for span in one.prompt)
    assert filtered.prompt_tokens == characters
    for name, calls in (("filter 1", len(sent)), ("projection 1", 10)):
        own = [each[1:] for each in said if each[0] == name]
        answered = [done for done, _ in own]
        assert answered == sorted(answered)
        assert own[-1] == (calls, calls)
        assert all(done <= total for done, total in own)


def test_a_row_asked_in_two_batches_is_one_call(con: Connection, backend: FakeBackend) -> None:
    con.sql(f"SELECT id FROM t WHERE {yes('rare', 'kind')} LIMIT 300")
    assert len(backend.asked) <= 97
    assert len({request.fields["kind"] for request in backend.asked}) == len(backend.asked)


def test_a_limit_of_nothing_and_beyond_all(con: Connection, backend: FakeBackend) -> None:
    assert con.sql(f"SELECT id FROM t WHERE {yes('some', 'id')} LIMIT 0").fetchall() == []
    assert backend.asked == []
    result = con.sql(f"SELECT id FROM t WHERE {yes('rare', 'id')} LIMIT 1000 OFFSET 3")
    assert len(result) == sum(holds("rare", n) for n in range(ROWS)) - 3
    assert len(backend.asked) == ROWS


def test_a_share_of_the_rows_cuts_after_the_filters(con: Connection, backend: FakeBackend) -> None:
    con.sql(f"SELECT LLM('tell', id) FROM t WHERE {yes('some', 'id')} LIMIT 10%")
    assert backend.queries.count("some") == ROWS
    passed = sum(holds("some", n) for n in range(ROWS))
    assert backend.queries.count("tell") == passed // 10


def test_an_order_is_computed_after_the_filter(con: Connection, backend: FakeBackend) -> None:
    order = "if(id % 2 = 0, 1, error('odd'))"
    backend.function = lambda query, fields: "Yes" if fields["id"] % 2 == 0 else "No"
    result = con.sql(f"SELECT id FROM t WHERE {yes('some', 'id')} ORDER BY {order}, id LIMIT 2")
    assert result.fetchall() == [(0,), (2,)]


def test_a_row_that_cannot_be_judged_does_not_pass(con: Connection, backend: FakeBackend) -> None:
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


def test_having_goes_before_other_calls_about_groups(con: Connection, backend: FakeBackend) -> None:
    result = con.sql(
        f"SELECT kind, LLM('tell', kind) FROM t GROUP BY kind HAVING {yes('some', 'kind')} "
        "ORDER BY kind LIMIT 4"
    )
    assert len(result) == backend.queries.count("tell") == 4
    assert backend.queries.count("some") < 40


def test_errors_are_those_of_returned_rows(con: Connection, backend: FakeBackend) -> None:
    backend.function = lambda query, fields: "Yes" if query == "some" else "many"
    with pytest.warns(PartialResultWarning, match="^3 LLM values"):
        result = con.sql(f"SELECT LLM('tell', id)::INT FROM t WHERE {yes('some', 'id')} LIMIT 3")
    assert [error.row for error in result.errors] == [0, 1, 2]


def test_the_ledger_has_the_answers_of_all_batches() -> None:
    """Of an interrupted query, and of one with a smaller limit."""

    def stops(query: str, fields: Fields) -> str:
        if fields["id"] == 30:
            raise KeyboardInterrupt
        return answer(query, fields)

    backend = FakeBackend(stops)
    with connect(backend) as con:
        con.register("t", {"id": list(range(ROWS))})
        query = f"SELECT id FROM t WHERE {yes('rare', 'id')} LIMIT "
        with pytest.raises(KeyboardInterrupt):
            con.sql(f"{query} 10")
        asked = len(backend.asked) - 1
        backend.function = answer
        assert con.sql(f"{query} 10").report.ledger_hits == asked
        first = len(backend.asked) - 1
        report = con.sql(f"{query} 20").report
        assert report.ledger_hits == first
        assert len(backend.asked) - 1 == first + report.calls
