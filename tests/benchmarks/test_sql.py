"""The SQL benchmark asks the same of all its sides, and says how fast each was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks.sql import engine as sql_engine
from benchmarks.sql import queries as sql_queries
from benchmarks.sql import sizes as sql_sizes
from benchmarks.sql.benchmark import BENCHMARK
from benchmarks.sql.path import QUERIES
from benchmarks.sql.queries import GGR, GOALS, NO_CACHE, ORIGINAL, Ran
from benchmarks.sql.sizes import Sizes
from relquery.model.load import load
from relquery.report import Report, StageReport
from tests.benchmarks.conftest import Quick, by_name, films

SPEC = "random:layers=1,hidden=32,heads=2"
TINY = Sizes(SPEC, 300, rows=12, prompts=(2, 64), steps=2, requests=4, shared=48, wide=SPEC)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with a few films in place of the real ones."""
    path = tmp_path / sql_queries.FILE
    path.parent.mkdir()
    pq.write_table(films(), path)
    return tmp_path


def ran(seconds: float, cached: int) -> Ran:
    stage = StageReport(
        "filter 1", "LLM('x')", rows=4, calls=4, ledger_hits=0, attempts=4, errors=0,
        prompt_tokens=100, cached_tokens=cached, output_tokens=4,
        seconds=seconds, solver_seconds=0.0, order="ggr", phr=0.5,
    )  # fmt: skip
    return Ran(Report((stage,)), seconds)


def test_a_quick_run_judges_its_figures_and_writes_all_parts(
    data: Path, quick: Quick, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_sizes, "QUICK", TINY)
    figures, text = quick(BENCHMARK)
    assert figures.pop("ggr_beer_seconds").value is None, "there are no beers"
    path = {name: figures.pop(name) for name in list(figures) if name.endswith("_ms")}
    assert len(path) == len(QUERIES), "too slow to be judged at a small size"
    assert figures.pop("filter_statements").holds
    assert not {figures.pop(f"filter_{name}").value for name in ("functions", "files")} & {None, 0}
    assert all(figure.holds is not None for figure in figures.values())
    over = ("over_unshared_float32", "over_unshared_bfloat16", "over_without")
    shared = {f"decode_shared_{name}" for name in over}
    assert set(figures) == {*GOALS, "prefill_over_transformers", "decode_4_over_1", *shared}
    assert "Movies, 12 rows" in text
    assert "| filter | no cache |" in text
    assert "| sql/binder |" in text
    assert f"| `{SPEC}` | bfloat16 |" in text


def test_all_sides_of_a_query_ask_the_same_and_differ_in_what_they_say(data: Path) -> None:
    movies = pq.read_table(data / sql_queries.FILE)
    model = sql_queries.load_model(movies, TINY)
    filtering, _ = sql_queries.QUERIES
    found = sql_queries.run(model, movies, filtering)
    reports = {side: at.report for side, at in found.items()}
    assert list(reports) == [GGR, ORIGINAL, NO_CACHE]
    assert {report.calls for report in reports.values()} == {20}
    assert reports[NO_CACHE].cached_tokens == 0
    assert reports[GGR].hit_rate > reports[ORIGINAL].hit_rate > 0
    assert all(at.seconds > 0 for at in found.values())


def test_without_the_table_there_are_no_values(quick: Quick) -> None:
    figures, _ = quick(BENCHMARK, "queries")
    assert {name: figure.goal for name, figure in figures.items()} == GOALS
    assert all(each.value is None and "absent" in each.note for each in figures.values())


def test_figures_are_ratios_to_the_ordered_side() -> None:
    sides = {GGR: ran(2.0, 80), ORIGINAL: ran(8.0, 30), NO_CACHE: ran(10.0, 0)}
    found = sql_queries.figures({"filter": sides, "projection": sides})
    assert by_name(found) == {
        "filter_ggr_over_original": 4.0,
        "filter_ggr_over_no_cache": 5.0,
        "filter_hit_rate": 0.8,
        "projection_ggr_over_original": 4.0,
    }


def test_engines_decode_by_turns_after_all_prompts_are_computed() -> None:
    model = load(SPEC)
    prompts = np.arange(4 * 40).reshape(4, 40) % 200
    engines = {
        side: sql_engine.decoding(model, prompts, 3, share)
        for side, share in (("a", True), ("b", False))
    }
    before = [len(request.output) for request in engines["b"].running]
    found = sql_engine.speeds(engines, 4, 3)
    assert [len(request.output) for request in engines["b"].running] == [n + 3 for n in before]
    assert found["a"] > 0
    assert found["b"] > 0


def test_sharing_is_held_against_the_same_requests_without_the_context() -> None:
    shared = {
        ("x", "float32"): {"shared": 80.0, "unshared": 40.0, "without": 100.0},
        ("y", "bfloat16"): {"shared": 30.0, "unshared": 6.0, "without": 40.0},
    }
    assert by_name(sql_engine.shared_figures(shared)) == {
        "decode_shared_over_unshared_float32": 2.0,
        "decode_shared_over_unshared_bfloat16": 5.0,
        "decode_shared_over_without": 0.75,
    }
