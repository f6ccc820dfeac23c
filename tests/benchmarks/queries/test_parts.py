"""The smaller parts of the benchmark: answers under a schema, EXPLAIN, groups, and prompts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

import pytest

from benchmarks.queries import sizes
from benchmarks.queries.benchmark import BENCHMARK
from benchmarks.queries.calls.cases import CASES, Case
from benchmarks.queries.constrained import Measured, is_valid
from benchmarks.queries.explain import Counts, FirstStage, figures
from benchmarks.queries.groups import QUESTION, aggregate, in_groups
from benchmarks.queries.groups import figures as of_groups
from benchmarks.queries.million import AtOnce
from benchmarks.queries.network import train
from benchmarks.queries.prompts import read
from relquery.backends.base import Answers
from relquery.connection import connect
from relquery.prompt import Answer, Finish, Prompt, Sampling
from tests.benchmarks.conftest import Quick, by_name

SMALL = "random:layers=1,hidden=32,heads=2"
VALID = '{"title":"A","year":1999,"genre":"drama","recommended":true,"stars":5}'
SIMPLE, EARLY = CASES[0], next(case for case in CASES if case.stops_early)
TEXTS = ["The plot is thin, but the cast is fun.", "A long night.", "I laughed, and then I cried."]


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = replace(sizes.QUICK, model=SMALL, small=SMALL, structs=3, rows_explained=12)
    monkeypatch.setattr(sizes, "QUICK", changed)


def test_a_run_finds_all_answers_valid_and_as_long_as_the_free_text(quick: Quick) -> None:
    found, page = quick(BENCHMARK, "constrained")
    assert found["constrained_valid"].value == 1
    assert "at a small size" in found["constrained_over_free"].note
    assert "3 rows" in page


@pytest.mark.parametrize(
    "text",
    [
        VALID[:-1],
        VALID.replace('"A"', f'"{"A" * 25}"'),
        VALID.replace("1999", "19.5"),
        VALID.replace("1999", "2100"),
        VALID.replace("drama", "dram"),
        VALID.replace("true", "1"),
        VALID.replace("5}", "0}"),
        VALID.replace('"title"', '"name"'),
        "[]",
        None,
    ],
)
def test_an_answer_that_breaks_its_type_is_not_valid(text: str | None) -> None:
    assert is_valid(Answer(VALID, Finish.STOP))
    assert not is_valid(Answer(VALID, Finish.LENGTH))
    assert not is_valid(Answer(text, Finish.STOP))


def test_medians_are_compared() -> None:
    at = Measured((1.0, 9.0, 2.0), (4.0, 1.0, 5.0), 3.0, (Answer(VALID, Finish.STOP),) * 2)
    assert (at.over_free, at.valid) == (0.5, 1)


def test_explain_asks_nothing_and_knows_the_first_stage(quick: Quick) -> None:
    found, page = quick(BENCHMARK, "explain")
    assert by_name(found.values()) == {
        "explain_calls": 0,
        "explain_first_stage": 1,
    }
    assert "12 tickets" in page


@pytest.mark.parametrize(
    ("case", "said", "is_exact", "holds"),
    [
        (SIMPLE, Counts(4, 2, 90), True, True),
        (SIMPLE, Counts(4, 2, 90), False, False),
        (SIMPLE, Counts(4, 2, 91), True, False),
        (SIMPLE, Counts(4, 2, None), True, False),
        (EARLY, Counts(9, 2, 90), False, True),
        (EARLY, Counts(9, 1, 90), False, False),
        (EARLY, Counts(None, 2, 90), False, False),
    ],
)
def test_what_is_said_must_be_what_is_run_or_a_bound_where_it_stops_early(
    case: Case, said: Counts, is_exact: bool, holds: bool
) -> None:
    at = FirstStage(case, said, is_exact, Counts(4, 2, 90), asked=0)
    assert at.holds is holds
    assert by_name(figures([at]))["explain_first_stage"] == float(holds)


def test_groups_have_so_many_characters() -> None:
    rows = in_groups(TEXTS, groups=3, characters=100)
    for group in range(3):
        texts = [row["review"] for row in rows if row["film"] == f"film {group}"]
        assert sum(map(len, texts)) == 100


def test_no_group_is_without_an_answer_and_the_calls_are_those_of_explain() -> None:
    rows = in_groups(TEXTS, groups=2, characters=2_500)
    spec = "random:layers=1,hidden=64,heads=2,context=1152"
    at = aggregate(train(spec, rows, [QUESTION], 512), rows)
    assert (at.groups, at.missing) == (2, 0)
    assert at.calls == at.said > 4
    assert all(figure.holds for figure in of_groups(at))


class Listening(AtOnce):
    """Keeps the last prompt."""

    sent: Prompt = ()

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Answers:
        (self.sent,) = prompts
        return super().answer(prompts, sampling)


@pytest.mark.parametrize("items", ["['b', 'a', NULL]", "['a', NULL, 'b']"])
@pytest.mark.parametrize("form", ["BAG({})", "MODULE(BAG({}))"])
def test_items_of_a_bag_are_one_field_in_any_order(items: str, form: str) -> None:
    backend = Listening()
    with closing(connect(backend, ledger=None)) as connection:
        connection.sql(f"SELECT LLM('Why?', item := {form.format(items)}, one := coalesce('x'))")
    asked = read(backend.sent)
    assert asked is not None
    assert (asked.prompt, asked.fields) == ("Why?", {"item": ["a", "b", None], "one": "x"})
