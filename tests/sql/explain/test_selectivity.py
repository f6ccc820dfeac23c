"""Given which share of the rows passes, EXPLAIN says what later stages are expected to ask."""

from __future__ import annotations

from typing import Any

import pytest

from relquery.connection import Connection, connect
from relquery.errors import ConfigError
from tests.sql.explain.readers import Reader

ROWS = 200
TWO = "SELECT LLM('c', b) FROM t WHERE LLM('a', a) = 'Yes'"


def answer(query: str, fields: Any) -> str:
    return query


@pytest.fixture
def backend() -> Reader:
    return Reader(answer)


@pytest.fixture
def con(backend: Reader):
    """A table in which a has 200 values, b has 50 and c has 4."""
    with connect(backend) as con:
        numbers = range(ROWS)
        con.register(
            "t",
            {
                "a": [f"text {at:03}" for at in numbers],
                "b": [f"word {at % 50:03}" for at in numbers],
                "c": [f"kind {at % 4}" for at in numbers],
            },
        )
        yield con


def told(con: Connection, query: str, selectivity: Any = 0.3) -> list[tuple[Any, ...]]:
    calls = con.explain(query, selectivity=selectivity).calls
    return [(one.stage, one.rows, one.calls, one.counts) for one in calls]


def test_a_share_of_the_rows_passes_a_filter(con: Connection, backend: Reader):
    first, second = told(con, TWO)
    assert first == ("filter 1", 200, 200, "exact")
    assert second[:2] == ("projection 1", 60)
    assert 30 <= second[2] <= 45  # of 50 inputs, 60 random rows of 200 have about 36
    assert second[3] == "expected"
    assert backend.asked == []


def test_the_tokens_are_those_of_the_rows_that_pass(con: Connection):
    _, second = con.explain(TWO, selectivity=0.3).calls
    everything = con.explain(TWO).calls[1]
    assert second.effort is not None
    assert everything.effort is not None
    assert second.effort.prompt_tokens * 50 == everything.effort.prompt_tokens * (second.calls or 0)


def test_without_a_share_all_stays_a_bound(con: Connection):
    assert told(con, TWO, None)[1] == ("projection 1", 200, 50, "at most")


def test_equal_inputs_have_equal_answers(con: Connection):
    query = "SELECT LLM('d', b) FROM t WHERE LLM('a', c) = 'Yes'"
    first, (_, rows, calls, _) = told(con, query, 0.5)
    assert first == ("filter 1", 200, 4, "exact")
    assert rows == 100
    assert calls in (25, 50)  # two of four values of c pass, with half of b's values or all


def test_a_share_may_be_given_by_stage(con: Connection):
    query = f"{TWO} AND LLM('b', b) = 'Yes'"
    stages = told(con, query, {"filter 1": 0.5, "filter 2": 0.1})
    assert [(stage, rows) for stage, rows, _, _ in stages] == [
        ("filter 1", 200),
        ("filter 2", 100),
        ("projection 1", 10),
    ]


def test_a_stage_that_is_not_named_keeps_its_rows_and_what_follows_is_a_bound(con: Connection):
    query = f"{TWO} AND LLM('b', b) = 'Yes'"
    stages = told(con, query, {"filter 1": 0.5})
    assert [(rows, counts) for _, rows, _, counts in stages] == [
        (200, "expected"),
        (100, "expected"),
        (100, "at most"),
    ]


def test_the_opposite_of_a_condition_passes_the_share_that_is_given(con: Connection):
    assert told(con, "SELECT LLM('c', b) FROM t WHERE NOT LLM('a', a) = 'Yes'", 0.1)[1][1] == 20


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("LLM('a', a) = 'Yes' OR a = 'text 007'", (199, 61)),
        ("CASE WHEN LLM('a', a) = 'Yes' THEN LLM('b', a) = 'Yes' ELSE false END", (200, 60, 18)),
    ],
)
def test_each_condition_on_answers_has_the_share(condition, rows, con: Connection):
    stages = told(con, f"SELECT LLM('c', a) FROM t WHERE {condition}")
    assert tuple(one[1] for one in stages) == pytest.approx(rows, abs=1)


def test_the_sides_of_an_or_are_asked_in_either_order_as_in_the_run(con: Connection):
    query = "SELECT LLM('c', a) FROM t WHERE LLM('a', a) = 'Yes' OR LLM('b', a) = 'Yes'"
    first, second, last = told(con, query)
    assert first[1] + second[1] == pytest.approx(200 + 140, abs=2)
    assert last[1] == pytest.approx(200 - 98, abs=2)


def test_a_call_after_an_answer_is_asked_for_the_share(con: Connection):
    query = "SELECT CASE WHEN LLM('a', a) = 'Yes' THEN LLM('c', a) ELSE LLM('d', a) END FROM t"
    assert [one[1] for one in told(con, query)] == [200, 60, 140]


def test_a_limit_stops_the_filter_as_early_as_the_run_does():
    def every_fifth(query: str, fields: Any) -> str:
        return "Yes" if int(fields["a"][-3:]) % 5 == 0 else "No"

    query = "SELECT LLM('c', a) FROM t WHERE LLM('a', a) = 'Yes' LIMIT 8"
    with connect(Reader(every_fifth)) as con:
        con.register("t", {"a": [f"text {at:03}" for at in range(ROWS)]})
        first, second = con.explain(query, selectivity=0.2).calls
        stages = con.sql(query).report.stages
    assert first.counts == "expected"
    assert first.rows == pytest.approx(stages[0].rows, rel=0.25)
    assert (second.rows, stages[1].rows) == (8, 8)


def test_a_cut_by_answers_leaves_as_many_rows_as_it_says(con: Connection):
    stages = told(con, "SELECT LLM('c', b) FROM t ORDER BY LLM('a', a) LIMIT 20 OFFSET 5")
    assert [(one[1], one[3]) for one in stages] == [(200, "exact"), (20, "expected")]


def test_rows_that_are_expected_pass_through_subqueries(con: Connection):
    query = (
        "SELECT LLM('c', b) FROM (SELECT DISTINCT b FROM t WHERE LLM('a', a) = 'Yes') WHERE b > 'a'"
    )
    _, second = told(con, query)
    assert second[1] == second[2]
    assert 30 <= second[1] <= 45
    assert second[3] == "expected"


def test_a_call_about_an_answer_stays_a_bound(con: Connection):
    stages = told(con, "SELECT LLM('c', LLM('b', b)) FROM t WHERE LLM('a', a) = 'Yes'")
    assert [one[3] for one in stages] == ["exact", "expected", "at most"]


def test_what_an_earlier_stage_is_expected_to_ask_is_not_asked_again(con: Connection):
    query = "SELECT LLM('a', a) FROM t UNION ALL SELECT LLM('a', a) FROM t WHERE LLM('b', a) = 'Y'"
    assert [one[2] for one in told(con, query)] == [200, 200, 0]


@pytest.mark.parametrize("selectivity", [-0.1, 1.5, "much", True, {"filter 1": 2}])
def test_a_share_is_a_number_from_0_to_1(selectivity, con: Connection, backend: Reader):
    with pytest.raises(ConfigError, match="selectivity"):
        con.explain(TWO, selectivity=selectivity)
    assert backend.asked == []


def test_an_unknown_stage_is_an_error_that_names_the_others(con: Connection):
    with pytest.raises(ConfigError, match=r"(?s)'filter 2'.*filter 1.*projection 1"):
        con.explain(TWO, selectivity={"filter 2": 0.5})
