"""Calls are counted on queries whose rows are those of the naive plan."""

from __future__ import annotations

import pytest

from benchmarks.queries.benchmark import BENCHMARK
from benchmarks.queries.calls.cases import CASES, CLASSIFIED, Case
from benchmarks.queries.calls.count import count
from benchmarks.queries.calls.oracles import Needed
from benchmarks.queries.calls.world import SHARES, World, build, is_yes
from benchmarks.queries.parts.calls import cells, figures
from tests.benchmarks.conftest import Quick

WORLD = build(tickets=60, seed=1)

ALL = (*CASES, CLASSIFIED)


@pytest.mark.parametrize("case", ALL, ids=[case.name for case in ALL])
def test_a_query_has_the_rows_of_the_naive_plan_in_no_fewer_calls_than_the_oracle(
    case: Case,
) -> None:
    at = count(case, WORLD)
    assert at.right
    assert at.calls is not None
    assert at.needed.calls <= at.calls <= at.needed.per_row
    assert case.depends.endswith(".")


def nothing(world: World) -> Needed:
    """Nothing."""
    return Needed([], 1, 1)


def test_wrong_rows_are_told() -> None:
    at = count(Case("SELECT id FROM tickets", nothing), WORLD)
    assert (at.calls, at.right) == (0, False)


def test_a_refused_query_has_no_figure_but_a_reason() -> None:
    at = count(Case("SELECT LLM(3, body) FROM tickets", nothing, most=1), WORLD)
    for figure in figures(at):
        assert figure.value is None
        assert "must be text" in figure.note
    assert cells(at)[1] == "refused"


@pytest.mark.parametrize("prompt", SHARES)
def test_the_stand_in_says_yes_as_often_as_it_should(prompt: str) -> None:
    said = [is_yes(prompt, body=row["body"]) for row in build(tickets=4_000, seed=0).tickets]
    assert sum(said) / len(said) == pytest.approx(SHARES[prompt], abs=0.025)


def test_a_run_judges_each_query_and_shows_its_sql(quick: Quick) -> None:
    found, page = quick(BENCHMARK, "calls")
    assert found["calls_same_rows"].value == 1
    assert {f"calls_{case.name}" for case in ALL} < set(found)
    assert {"most_limit", "most_join_on_plain", "most_join_as_classification"} < set(found)
    assert all(figure.holds is not None for figure in found.values())
    assert all(f"`{case.sql}`" in page for case in ALL)
