"""A guard asks some inputs in both orders, and sends fields as written if answers differ."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest

from relquery.config import Order
from relquery.connection import Connection, connect
from relquery.errors import OrderWarning, PartialResultWarning, RequestError
from relquery.prompt import Answer, Finish
from tests.sql.fakes import Asked, FakeBackend, Fields

ROWS, EVERY = 200, 10  # of so many rows, each tenth has an answer that changes with the order
QUERY = "SELECT n, LLM('ask', n, kind) AS answer FROM notes ORDER BY n"
NOTES = f"""
CREATE TABLE notes AS
    SELECT n, 'a kind with a long name ' || n % 4 AS kind, n % 4 AS short FROM range({ROWS}) r(n)
"""


def is_written(fields: Fields) -> bool:
    """Whether fields come in the order of the query: `n` first."""
    return next(iter(fields)) == "n"


def by_order(query: str, fields: Fields) -> str:
    """An answer that tells the order in every tenth row."""
    n, changes = fields["n"], not is_written(fields) and fields["n"] % EVERY == 0
    match query.split():
        case ["yes"]:
            return "No" if (n % 3 == 0) == (not changes) else "Yes"
        case ["number", *_]:
            return json.dumps({"answer": n + changes})
        case _:
            return f"{n} reordered" if changes else str(n)


def long(*cases: tuple[Any, ...]) -> list[Any]:
    return [pytest.param(*case, marks=pytest.mark.long) for case in cases]


def opened(backend: FakeBackend, **settings: Any) -> Connection:
    connection = connect(backend, **settings)
    connection.database.execute(NOTES)
    return connection


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend(by_order)


@pytest.fixture
def con(backend: FakeBackend) -> Iterator[Connection]:
    with opened(backend) as connection:
        yield connection


def written(rows: int = ROWS) -> list[tuple[int, str]]:
    """The rows of QUERY if fields are sent as written."""
    return [(n, str(n)) for n in range(rows)]


def twice(asked: list[Asked]) -> set[int]:
    """The rows that were asked more than once, each in both orders."""
    orders: dict[int, list[bool]] = {}
    for one in asked:
        orders.setdefault(one.fields["n"], []).append(is_written(one.fields))
    found = {n for n, each in orders.items() if len(each) > 1}
    assert all(sorted(orders[n]) == [False, True] for n in found)
    return found


def test_the_agreement_of_all_rows_is_reported(con: Connection, backend: FakeBackend) -> None:
    result = con.sql(QUERY, guard=0.9, guard_rows=ROWS)
    (stage,) = result.report.stages
    assert (stage.agreement, stage.compared, stage.order) == (1 - 1 / EVERY, ROWS, "tree")
    assert (stage.calls, len(backend.asked)) == (2 * ROWS, 2 * ROWS)
    assert len(twice(backend.asked)) == ROWS
    assert result.fetchall() == [(n, by_order("", {"kind": "", "n": n})) for n in range(ROWS)]
    assert stage.prompt_tokens == sum(
        sum(len(str(span.content)) for span in one.prompt) for one in backend.asked
    )


def test_below_it_rows_are_answered_as_written(con: Connection, backend: FakeBackend) -> None:
    with pytest.warns(OrderWarning, match="projection 1: 20 of 200 answers changed") as caught:
        result = con.sql(QUERY, guard=0.91, guard_rows=ROWS)
    assert len(caught) == 1
    assert result.fetchall() == written()
    assert result.report.stages[0].order == "pinned: agreement 0.90 of 200"
    assert "pinned: agreement 0.90 of 200" in str(result.report)
    assert result.report.calls == len(backend.asked) == 2 * ROWS


def test_the_agreement_may_be_that_of_a_sample(con: Connection, backend: FakeBackend) -> None:
    (stage,) = con.sql(QUERY, guard=0.5, guard_rows=60).report.stages
    sample = twice(backend.asked)
    assert len(sample) == stage.compared == 60
    changed = sum(n % EVERY == 0 for n in sample)
    assert 0 < changed < 20
    assert stage.agreement == (60 - changed) / 60
    assert stage.calls == len(backend.asked) == ROWS + 60


def test_the_rest_of_a_pinned_call_is_asked_once_with_equal_cells_together(
    backend: FakeBackend,
) -> None:
    backend.function = lambda query, fields: ", ".join(fields)
    with opened(backend) as con, pytest.warns(OrderWarning, match="50 of 50"):
        result = con.sql("SELECT LLM('ask', short, n, kind) FROM notes", guard=1)
    rest = [list(one.fields.items()) for one in backend.asked[100:]]
    assert len(rest) == ROWS - 50
    assert {tuple(name for name, _ in fields) for fields in rest} == {("short", "n", "kind")}
    assert sum(one[0] != other[0] for one, other in pairwise(rest)) == 3  # of 4 values
    assert result.report.calls == ROWS + 50
    assert 0 < result.report.stages[0].phr < 1


def test_nothing_is_compared_where_nothing_can_move(con: Connection, backend: FakeBackend) -> None:
    backend.function = lambda query, fields: "x"
    cases: list[tuple[str, Order]] = [
        ("SELECT LLM('ask', n) FROM notes", "tree"),
        ("SELECT LLM(PROMPT('ask {0} {1}', n, kind)) FROM notes", "tree"),
        (QUERY, "original"),
        ("SELECT LLM('other', n, kind) FROM notes WHERE n < 1", "tree"),
        ("SELECT LLM('Say hello') FROM notes", "tree"),
    ]
    for query, order in cases:
        backend.asked.clear()
        report = con.sql(query, guard=1, order=order).report
        prompts = {str(one.prompt) for one in backend.asked}
        assert report.calls == len(backend.asked) == len(prompts), query
        assert report.stages[0].compared is None, query


def test_groups_are_not_compared(con: Connection, backend: FakeBackend) -> None:
    backend.function = lambda query, fields: "x"
    result = con.sql("SELECT short, AI_AGG('ask', n, kind) FROM notes GROUP BY short", guard=1)
    assert result.report.stages[0].compared is None
    assert result.report.calls == len({str(one.prompt) for one in backend.asked})


def test_a_guard_of_the_connection_holds_unless_it_is_turned_off(backend: FakeBackend) -> None:
    with opened(backend, guard=0.5, guard_rows=20) as con:
        assert con.sql(QUERY).report.stages[0].compared == 20
        assert con.sql(QUERY, guard_rows=30).report.stages[0].compared == 30
        stage = con.sql(QUERY, guard=False).report.stages[0]
        assert (stage.compared, stage.agreement, stage.calls) == (None, None, 0)


@pytest.mark.parametrize("guard", [0.5, *long((1.0,))])
@pytest.mark.filterwarnings("ignore::relquery.errors.OrderWarning")
def test_the_same_query_asks_nothing_again(
    guard: float, con: Connection, backend: FakeBackend
) -> None:
    first, asked = con.sql(QUERY, guard=guard), len(backend.asked)
    again = con.sql(QUERY, guard=guard)
    assert len(backend.asked) == asked == ROWS + 50
    assert again.fetchall() == first.fetchall()
    told, repeated = first.report.stages[0], again.report.stages[0]
    assert (repeated.calls, repeated.ledger_hits, repeated.prompt_tokens) == (0, ROWS + 50, 0)
    assert (repeated.agreement, repeated.order) == (told.agreement, told.order)
    unguarded = con.sql(QUERY)  # the ledger has what the rows got
    assert (unguarded.fetchall(), len(backend.asked)) == (first.fetchall(), asked)


def test_the_ledger_keeps_answers_of_orders_apart(con: Connection, backend: FakeBackend) -> None:
    in_order = con.sql(QUERY, order="original").fetchall()
    assert in_order == written()
    report = con.sql(QUERY, guard=0.5, guard_rows=ROWS).report
    assert report.stages[0].agreement == 1 - 1 / EVERY  # not 1: the solver's order was really asked
    assert con.sql(QUERY, guard=0.5, guard_rows=ROWS).fetchall() == in_order  # known answers stay
    with opened(FakeBackend(by_order)) as other:  # a pinned call takes none of another order
        assert other.sql(QUERY).fetchall() != written()
        with pytest.warns(OrderWarning):
            assert other.sql(QUERY, guard=1, guard_rows=ROWS).fetchall() == written()


@pytest.mark.parametrize(
    ("guard", "stop"),
    [
        (1.0, 101),
        *long(*product([0.5, 1.0], [0, 20, 49, 50, 51, 99, 100, 180, 249]), (0.5, 101)),
    ],
)
@pytest.mark.filterwarnings("ignore::relquery.errors.OrderWarning")
def test_no_answer_is_lost_or_asked_again_after_a_stop(
    guard: float, stop: int, tmp_path: Path
) -> None:
    asked: list[str] = []

    def interrupted(query: str, fields: Fields) -> str:
        if len(asked) == stop:
            raise KeyboardInterrupt
        asked.append(str(fields))
        return by_order(query, fields)

    stopped = opened(FakeBackend(interrupted), ledger=tmp_path / "l.db")
    with stopped as con, pytest.raises(KeyboardInterrupt):
        con.sql(QUERY, guard=guard)
    resumed = FakeBackend(by_order)
    with opened(resumed, ledger=tmp_path / "l.db") as con:
        result = con.sql(QUERY, guard=guard)
    asked += [str(one.fields) for one in resumed.asked]
    assert len(resumed.asked) == result.report.calls == ROWS + 50 - stop
    assert Counter(asked).most_common(1)[0][1] == 1
    with opened(FakeBackend(by_order)) as con:
        assert result.fetchall() == con.sql(QUERY, guard=guard).fetchall()


@pytest.mark.filterwarnings("ignore::relquery.errors.OrderWarning")
def test_progress_counts_each_answer_once(con: Connection, backend: FakeBackend) -> None:
    def told() -> list[tuple[str, int, int]]:
        heard: list[tuple[str, int, int]] = []
        con.sql(QUERY, guard=1, progress=lambda *each: heard.append(each))
        return heard

    first, again = told(), told()
    assert {one[::2] for one in first} == {("projection 1", ROWS + 50)}
    assert sorted({done for _, done, _ in first}) == list(range(ROWS + 51))
    assert [done for _, done, _ in first] == sorted(done for _, done, _ in first)
    assert again[-1] == ("projection 1", ROWS + 50, ROWS + 50)


def failing(in_order: bool) -> Callable[[str, Fields], str | Answer]:
    """Fails for every tenth row in one order only."""

    def function(query: str, fields: Fields) -> str | Answer:
        if fields["n"] % EVERY == 0 and is_written(fields) == in_order:
            return Answer(None, Finish.ERROR, "out of ink")
        return str(fields["n"])

    return function


@pytest.mark.parametrize(("in_order", "guard"), [(False, 0.5), (True, 1.0)])
def test_a_failure_in_the_order_that_is_used_is_an_error_of_its_row(
    in_order: bool, guard: float, backend: FakeBackend
) -> None:
    backend.function = failing(in_order)
    with opened(backend, ledger=None) as con:
        with pytest.raises(RequestError, match=r"projection 1 for n = '0'.*out of ink"):
            con.sql(QUERY, guard=guard, guard_rows=ROWS, on_error="raise")
        backend.asked.clear()
        with pytest.warns((PartialResultWarning, OrderWarning)):
            result = con.sql(QUERY, guard=guard, guard_rows=ROWS)
    assert [error.row for error in result.errors] == list(range(0, ROWS, EVERY))
    assert result.report.stages[0].agreement == 1 - 1 / EVERY
    assert len(backend.asked) == 2 * ROWS
    backend.function = failing(not in_order)  # in an order that is not used, it stops no query
    with opened(backend, on_error="raise") as con, warnings.catch_warnings():
        warnings.simplefilter("ignore", OrderWarning)
        assert con.sql(QUERY, guard=guard, guard_rows=ROWS).fetchall() == written()


def test_a_limit_compares_in_its_first_batch(con: Connection, backend: FakeBackend) -> None:
    query = "SELECT n FROM notes WHERE LLM('yes', n, kind) = 'Yes' ORDER BY n LIMIT 40"
    with pytest.warns(OrderWarning, match="filter 1"):
        result = con.sql(query, guard=1)
    assert result.fetchall() == [(n,) for n in range(ROWS) if n % 3][:40]
    (stage,) = result.report.stages
    sample = twice(backend.asked)
    assert stage.compared == len(sample) == 40
    assert max(sample) < 45
    assert stage.calls == len(backend.asked) > 2 * 40 + 10
    later = backend.asked[80:]
    assert later
    assert all(is_written(one.fields) for one in later)
    asked = len(backend.asked)
    with pytest.warns(OrderWarning):
        assert con.sql(query, guard=1).fetchall() == result.fetchall()
    assert len(backend.asked) == asked


def test_labels_and_typed_values_are_pinned_too(con: Connection) -> None:
    labelled = "LLM('yes', n, kind, labels := ['Yes', 'No'])"
    typed = "LLM('number', n, kind, output := 'DECIMAL(9, 2)')"
    query = f"SELECT n, {labelled}, {typed} FROM notes ORDER BY n"
    with opened(FakeBackend(by_order), order="original") as other:
        expected = other.sql(query).fetchall()
    assert con.sql(query, guard=0.9, guard_rows=ROWS, on_error="raise").fetchall() != expected
    with pytest.warns(OrderWarning, match="20 of 200") as caught:
        assert con.sql(query, guard=0.95, guard_rows=ROWS).fetchall() == expected
    assert len(caught) == 2


@pytest.mark.parametrize("before", ["nothing", *long(("some rows",), ("the same query",))])
@pytest.mark.filterwarnings("ignore::relquery.errors.OrderWarning")
def test_explain_says_how_many_calls_there_are_at_most(
    before: str, con: Connection, backend: FakeBackend
) -> None:
    if before != "nothing":
        some = QUERY.replace("ORDER", "WHERE n < 90 ORDER")
        con.sql(some if before == "some rows" else QUERY, guard=1.0)
    made = len(backend.asked)
    explanation = con.explain(QUERY, guard=1.0)
    (told,) = explanation.calls
    assert len(backend.asked) == made
    assert (told.calls, told.counts) == (ROWS + 50, "at most")
    assert "the guard asks 50 of them a second time" in str(explanation)
    assert con.sql(QUERY, guard=1.0).report.calls <= ROWS + 50


@pytest.mark.parametrize("seed", [3, *long(*zip([0, 1, 2, *range(4, 20)]))])
@pytest.mark.filterwarnings("ignore::relquery.errors.OrderWarning")
def test_pinned_rows_are_those_of_a_call_per_row(seed: int) -> None:
    def function(query: str, fields: Fields) -> str:
        if query == "yes":  # the other answer in the other order
            return "Yes" if (fields["n"] % 2 == 0) == is_written(fields) else "No"
        return f"{query} {json.dumps([*fields.items()])}"

    case = "CASE WHEN LLM('yes', n, kind) = 'Yes' THEN LLM('up', n, short, kind) END"
    query = (
        f"SELECT n, LLM('ask', m := n % {10 + seed}, kind, short, n), {case} FROM notes "
        f"WHERE hash(n + {seed}) % 3 > 0 AND (LLM('yes', n, short) = 'Yes' OR n % 5 = 0) "
        f"ORDER BY n {'LIMIT 30' if seed % 2 else ''}"
    )
    with opened(FakeBackend(function)) as con:
        result = con.sql(query, guard=1, guard_rows=1 + 7 * seed)
    with opened(FakeBackend(function), order="original", ledger=None) as plain:
        assert result.fetchall() == plain.sql(query).fetchall()
    assert any(stage.is_pinned for stage in result.report.stages)
