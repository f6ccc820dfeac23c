"""The paper's queries ask the same on all sides, in answers of the paper's lengths."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks.queries import sizes
from benchmarks.queries.benchmark import BENCHMARK
from benchmarks.queries.network import train
from benchmarks.queries.paper.part import query_figure
from benchmarks.queries.paper.queries import QUERIES
from benchmarks.queries.paper.run import (
    NO_CACHE,
    OURS,
    SIDES,
    TABLE_ORDER,
    Costs,
    Measured,
    measure,
)
from benchmarks.reorder.tables import TABLES
from relquery.config import EngineConfig
from relquery.engine.cost import LinearCost
from tests.benchmarks.conftest import Quick, films

COSTS = Costs(prompt=0.01, decoded=0.05)
SPEC = "random:layers=1,hidden=32,heads=2"
BY_NAME = {query.name: query for query in QUERIES}
MOVIES = [query for query in QUERIES if query.table == "movies"]


@pytest.fixture(scope="module")
def measured() -> dict[str, Measured]:
    """The queries over films, at their full lengths."""
    prompts = [call.prompt for query in MOVIES for call in query.calls]
    model = train(SPEC, films().to_pylist(), prompts, 400)
    return {query.type: measure(model, films(), query, 1, COSTS) for query in MOVIES}


def test_all_sides_of_a_query_ask_the_same_and_have_the_same_rows(
    measured: dict[str, Measured],
) -> None:
    for at in measured.values():
        assert list(at.ran) == list(SIDES)
        reports = [ran.report for ran in at.ran.values()]
        assert len({(report.calls, report.output_tokens) for report in reports}) == 1
        assert not any(report.errors for report in reports)
        assert at.same_rows
        assert at.ran[NO_CACHE].report.cached_tokens == 0
        assert at.ran[OURS].computed < at.ran[NO_CACHE].computed
    mixed = {**measured["T1"].ran, OURS: measured["T2"].ran[OURS]}
    assert not replace(measured["T1"], ran=mixed).same_rows


def test_answers_are_as_long_as_in_the_paper(measured: dict[str, Measured]) -> None:
    for kind, tokens in (("T1", 2), ("T2", 29), ("T4", 2)):
        report = measured[kind].ran[OURS].report
        assert report.output_tokens == 20 * tokens
    first, second = measured["T3"].ran[OURS].report.stages
    assert first.output_tokens == 20 * 2
    assert 0 < second.calls < 20, "the filter passes some"
    assert second.output_tokens == 29 * second.calls
    assert measured["T4"].ran[OURS].rows.keys() - {(None,)}, "scores are numbers"


def test_a_token_costs_its_share_of_a_full_step() -> None:
    cost = LinearCost(1e-4, 0.02, 2e-4, 0.03, context_slope=1.0)
    config = EngineConfig(max_num_batched_tokens=100, max_num_seqs=10)
    assert Costs.of(cost, config) == pytest.approx(Costs(3e-4, 3.2e-3))
    assert COSTS.seconds(100, 10) == pytest.approx(1.5)


def test_a_filter_is_judged_by_its_gain_and_others_by_what_tokens_allow(
    measured: dict[str, Measured],
) -> None:
    for kind in ("T1", "T2"):
        at = measured[kind]
        ran = at.ran | {
            TABLE_ORDER: replace(at.ran[TABLE_ORDER], seconds=8.0),
            OURS: replace(at.ran[OURS], seconds=2.0),
        }
        changed = replace(at, ran=ran)
        table, ours = (
            0.01 * ran[side].computed + 0.05 * ran[side].decoded for side in (TABLE_ORDER, OURS)
        )
        assert changed.allowed == pytest.approx(table / ours)
        figure = query_figure(changed.query, changed)
        expected = 4.0 if kind == "T1" else 4.0 / changed.allowed
        assert figure.value == pytest.approx(expected)
        assert f"{changed.allowed:.2f}" in figure.note


def test_a_quick_run_writes_the_page_and_a_picture(
    tmp_path: Path, quick: Quick, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "QUICK", replace(sizes.QUICK, model=SPEC, vocabulary=300, rows=12))
    (known,) = (each for each in TABLES if each.name == "movies")
    (tmp_path / known.file).parent.mkdir()
    pq.write_table(films(), tmp_path / known.file)
    found, page = quick(BENCHMARK, "paper")
    assert found["same_rows"].value == 1
    assert found["t1_beer"].note == "its table is absent"
    assert "at a small size" in found["t1_movies"].note
    assert len(found) == len(QUERIES) + 2
    assert "| T1 movies | " in page
    assert (tmp_path / "queries_paper.png").exists()


def test_without_tables_there_are_no_values(quick: Quick) -> None:
    found, page = quick(BENCHMARK, "paper")
    assert found
    assert all(each.value is None and "absent" in each.note for each in found.values())
    assert "| T1" not in page


def test_the_queries_are_those_that_the_tables_allow() -> None:
    paper = {query.name for query in QUERIES if not query.ours}
    assert paper == {
        *("t1_movies", "t2_movies", "t3_movies", "t4_movies"),
        *("t1_beer", "t2_beer", "t1_posts", "t2_posts"),
    }
    assert {query.table for query in QUERIES if query.ours} == {"ratebeer", "contributions"}
    assert BY_NAME["t2_posts"].sql(shorter=8).count("max_tokens := 5") == 1
