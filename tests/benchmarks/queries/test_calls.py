"""Calls are counted on queries whose rows are those of the naive plan, beside oracles that ask no
more than they must."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, product
from typing import Any

import pytest

from benchmarks.queries.benchmark import BENCHMARK
from benchmarks.queries.calls import oracles
from benchmarks.queries.calls.cases import CASES, CLASSIFIED, Case
from benchmarks.queries.calls.oracles import Needed
from benchmarks.queries.calls.part import cells, count, figures
from benchmarks.queries.calls.world import (
    COMMON,
    RARE,
    SAME,
    SHARES,
    SHIPPING,
    URGENT,
    World,
    build,
    is_yes,
)
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


Question = tuple[str, str]
Known = dict[Question, bool]


def question(prompt: str, **fields: Any) -> Question:
    return prompt, "|".join(map(str, fields.values()))


def knowing(monkeypatch: pytest.MonkeyPatch, answers: Known) -> None:
    monkeypatch.setattr(
        oracles, "is_yes", lambda prompt, **fields: answers[question(prompt, **fields)]
    )


def tiny() -> World:
    """Few enough rows that all answers can be tried: six questions at most in any query."""
    return World(
        [{"id": i, "day": i, "body": f"body {i}"} for i in range(3)],
        [
            {"id": i, "product": i % 2, "stars": stars, "review": f"review {told}"}
            for i, (stars, told) in enumerate([(1, 0), (5, 0), (2, 1), (5, 2), (3, 3)])
        ],
        [{"product": 0, "name": "a", "price": 5}, {"product": 1, "name": "b", "price": 30}],
        [{"supplier": f"s{i}", "land": i % 2} for i in range(3)],
        [{"customer": f"c{i}", "land": i % 2} for i in range(3)],
    )


BODIES = [f"body {i}" for i in range(3)]
REVIEWS = [f"review {i}" for i in range(4)]
PAIRS = [f"s{i}|c{j}" for i in range(3) for j in range(3) if i % 2 == j % 2]
TRIED = [
    (oracles.plain_and, [(SHIPPING, text) for text in REVIEWS]),
    (oracles.plain_or, [(SHIPPING, text) for text in REVIEWS]),
    (oracles.limit, [(URGENT, text) for text in BODIES]),
    (oracles.both, [(prompt, text) for prompt in (RARE, COMMON) for text in BODIES]),
    (oracles.either, [(prompt, text) for prompt in (RARE, COMMON) for text in BODIES]),
    (oracles.join_on_plain, [(SAME, text) for text in PAIRS]),
]


def least(rows: dict[tuple[bool, ...], Any], truth: tuple[bool, ...]) -> int:
    """Answers that fix the rows, whatever the others are: the fewest, found by trying all."""
    for size in range(len(truth) + 1):
        for known in combinations(range(len(truth)), size):
            if all(
                found == rows[truth]
                for other, found in rows.items()
                if all(other[at] == truth[at] for at in known)
            ):
                return size
    raise AssertionError("all answers fix the rows")


@pytest.mark.parametrize(("oracle", "questions"), TRIED, ids=[case[0].__name__ for case in TRIED])
def test_no_fewer_answers_than_the_oracles_fix_the_result(
    monkeypatch: pytest.MonkeyPatch,
    oracle: Callable[[World], Needed],
    questions: list[Question],
) -> None:
    monkeypatch.setattr(oracles, "SHOWN", 2)
    found: dict[tuple[bool, ...], Needed] = {}
    for truth in product((False, True), repeat=len(questions)):
        knowing(monkeypatch, dict(zip(questions, truth, strict=True)))
        found[truth] = oracle(tiny())
    rows = {truth: sorted(needed.rows) for truth, needed in found.items()}
    assert len({tuple(each) for each in rows.values()}) > 1
    for truth, needed in found.items():
        assert needed.calls == least(rows, truth)
        assert needed.per_row >= needed.calls


def test_the_oracle_of_a_join_asks_for_kinds_of_names_that_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    knowing(monkeypatch, {(SHIPPING, text): text == "review 0" for text in REVIEWS})
    needed = oracles.join_then_ask(tiny())
    assert [row[0] for row in needed.rows] == [0]
    assert needed.calls == 3 + 1, "reviews 0, 1 and 3 are of the cheap product; its name once"
    assert needed.per_row == 3 + 1
