"""EXPLAIN is compared with the run of the same query on the same tokenizer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.harness import Settings
from benchmarks.queries import sizes
from benchmarks.queries.benchmark import BENCHMARK
from benchmarks.queries.calls.cases import CASES, Case
from benchmarks.queries.explain.first_stage import Counts, FirstStage
from benchmarks.queries.parts.explain import figures

TINY = replace(sizes.QUICK, small="random:layers=1,hidden=32,heads=2", rows_explained=12)
SIMPLE, EARLY = CASES[0], next(case for case in CASES if case.stops_early)


def test_explain_asks_nothing_and_knows_the_first_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "QUICK", TINY)
    monkeypatch.setattr("relquery.model.networks.stock.set_threads", lambda count: None)
    settings = Settings(quick=True, data=tmp_path, parts=("explain",), write=tmp_path)
    found = {figure.name: figure.value for figure in BENCHMARK.start(settings, lambda text: None)}
    assert found == {
        "explain_calls": 0,
        "explain_first_stage": 1,
        "explain_later_tokens": None,  # for a full run only: of few rows, chance decides
        "explain_later_hit_rate": None,
    }
    assert "12 tickets" in (tmp_path / "queries.md").read_text(encoding="utf-8")


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
    share = {figure.name: figure.value for figure in figures([at])}["explain_first_stage"]
    assert share == float(holds)
