"""T5 asks the same on all sides, and says how many of the hits there are the engine has."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from benchmarks.queries.network import train
from benchmarks.queries.paper.run import NO_CACHE, OURS, TABLE_ORDER, Costs
from benchmarks.reorder.tables import PASSAGES
from benchmarks.retrieval import sizes
from benchmarks.retrieval.benchmark import BENCHMARK
from benchmarks.retrieval.t5.changed import APART, PLAIN, REORDERED, Changed
from benchmarks.retrieval.t5.hits import Hits, beside_reorder
from benchmarks.retrieval.t5.hits import measure as measure_hits
from benchmarks.retrieval.t5.part import FOUND, GIVEN, figures, hit_figures
from benchmarks.retrieval.t5.run import (
    ANSWERS,
    CONTEXTS,
    RETRIEVED,
    ROWS,
    SEARCHED,
    Squad,
    T5Run,
    measure,
    read_squad,
)
from relquery.model.served import ServedModel
from tests.benchmarks.conftest import Quick, by_name

SPEC = "random:layers=1,hidden=32,heads=2"
COSTS = Costs(prompt=0.01, decoded=0.05)
TOWNS = ["Oslo", "Lima", "Bern", "Cairo", "Quito", "Sofia", "Tunis", "Seoul"]
COUNT = 14


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with questions about towns, and a passage about each town."""
    folder = tmp_path_factory.mktemp("data")
    (folder / ROWS).parent.mkdir()
    texts = [f"{town} is a town where {town.lower()} bread is made. " * 3 for town in TOWNS]
    rows = range(COUNT)
    towns = [[TOWNS[row % each] for each in (3, 5, 8)] for row in rows]
    asked = [f"How is bread made, in {one}, {two} or {three}?" for one, two, three in towns]
    places = {
        name: [texts[(row + at * (1 + row % 2)) % 8] for row in rows]
        for at, name in enumerate(PASSAGES)
    }
    pq.write_table(pa.table({"question": asked, **places}), folder / ROWS)
    contexts = pa.table({"ctx_id": list(range(8)), "title": TOWNS, "context": texts})
    pa_csv.write_csv(contexts, folder / CONTEXTS)
    answers = ["bread" if row % 2 else None for row in rows]
    pa_csv.write_csv(pa.table({"id": asked, "answer": answers}), folder / ANSWERS)
    return folder


@pytest.fixture(scope="module")
def squad(data: Path) -> Squad:
    found = read_squad(data)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def model(squad: Squad) -> ServedModel:
    return train(SPEC, squad.rows.to_pylist(), [SEARCHED.calls[0].prompt], 400)


@pytest.fixture(scope="module")
def ran(model: ServedModel, squad: Squad) -> T5Run:
    return measure(model, squad, 1, COSTS)


def test_all_sides_find_the_same_passages_and_answer_as_long_as_in_the_paper(ran: T5Run) -> None:
    exact = ran.exact.ran
    assert list(exact) == [NO_CACHE, TABLE_ORDER, OURS]
    assert ran.exact.same_rows
    assert len(exact[OURS].rows) == COUNT
    for at in (*exact.values(), ran.modules):
        assert at.report.calls == COUNT
        assert at.report.output_tokens == 11 * COUNT
        assert not at.report.errors
    assert exact[NO_CACHE].report.cached_tokens == 0
    assert exact[OURS].computed < exact[TABLE_ORDER].computed < exact[NO_CACHE].computed
    assert ran.modules.computed < exact[TABLE_ORDER].computed
    assert ran.modules.rows == exact[OURS].rows, "of modules the same passages"


def test_other_passages_give_other_rows(ran: T5Run) -> None:
    fields = ({"passage": ["a", str(number)], "question": "Who?"} for number in range(40))
    texts = {SEARCHED.answer(SEARCHED.calls[0].prompt, each) for each in fields}
    assert len(texts) > 10
    ours = ran.exact.ran[OURS]
    (question, text), *_ = ours.rows
    other = (texts - {text}).pop()
    rows = ours.rows - Counter([(question, text)]) + Counter([(question, other)])
    changed = replace(ours, rows=rows)
    assert not replace(ran.exact, ran={**ran.exact.ran, OURS: changed}).same_rows


def test_hits_are_nearly_all_there_are_and_those_of_bench_reorder(
    model: ServedModel, squad: Squad
) -> None:
    searched = measure_hits(model, squad, SEARCHED)
    given = beside_reorder(measure_hits(model, squad, RETRIEVED), squad)
    for at in (searched, given):
        assert 0 < at.of_fields < at.measured <= at.most
        assert 0 < at.before < at.measured
        assert at.reached > 0.97, "only part of a block is lost at each"
    assert searched.counted is None
    assert given.counted == pytest.approx(given.predicted, abs=0.01)


def test_the_hits_are_judged_where_the_engine_reaches_least() -> None:
    good = Hits(before=0.1, measured=0.5, most=0.5, of_fields=0.4, predicted=0.4)
    short = Hits(before=0.1, measured=0.3, most=0.5, of_fields=0.2, predicted=0.4, counted=0.45)
    found = list(hit_figures({FOUND: good, GIVEN: short}))
    assert by_name(found) == pytest.approx({"t5_hits_reached": 0.6, "t5_off_reorder": 0.05})
    assert not any(figure.holds for figure in found)


def test_seconds_are_held_against_our_order(ran: T5Run) -> None:
    exact = {
        side: replace(at, seconds=seconds)
        for (side, at), seconds in zip(ran.exact.ran.items(), (9.0, 6.0, 3.0), strict=True)
    }
    timed = T5Run(replace(ran.exact, ran=exact), replace(ran.modules, seconds=2.0))
    found = by_name(figures(timed))
    assert found["t5_over_as_retrieved"] == 2
    assert found["t5_of_allowed"] == pytest.approx(2 / timed.exact.allowed)
    assert found["t5_over_modules"] == 1.5


def test_changed_answers_are_counted_and_right_ones_hold_the_expected_text() -> None:
    answers: dict[str, list[str | None]] = {
        PLAIN: ["In Oslo.", "Lima", None, "x", "y"],
        REORDERED: ["In Oslo.", "Bern", None, "x", "y"],
        APART: ["oslo", "Lima", "y", None, "z"],
    }
    at = Changed(answers, ["Oslo", "Bern", "", "", "z"])
    assert [at.share(side) for side in answers] == [0, 0.25, pytest.approx(2 / 3)]
    assert [at.right(side) for side in answers] == [1, 2, 2]
    assert at.answerable == 3
    assert at.unanswered == 2


def test_a_quick_run_writes_the_page(
    data: Path, quick: Quick, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = replace(sizes.QUICK, model=SPEC, small=SPEC, vocabulary=300, questions=10, compared=2)
    monkeypatch.setattr(sizes, "QUICK", tiny)
    monkeypatch.setattr("benchmarks.retrieval.t5.part.calibrate", lambda model, seed: COSTS)
    found, page = quick(BENCHMARK, "t5", data=data)
    assert found["t5_same_rows"].value == 1
    assert found["t5_off_reorder"].holds
    assert "at a small size" in found["t5_over_as_retrieved"].note
    assert "of 2 answers" in found["t5_modules_changed"].note
    assert "passages('contexts', question, 5)" in page
    assert "| modules | " in page


def test_without_tables_there_are_no_values(quick: Quick) -> None:
    found, _ = quick(BENCHMARK, "t5")
    assert found
    assert all(each.value is None and "absent" in each.note for each in found.values())
