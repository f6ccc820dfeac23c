"""The relserve benchmark serves the same traces under every policy, and says what it found."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.harness import Settings
from benchmarks.relserve import checks as relserve_checks
from benchmarks.relserve import engine as relserve_engine
from benchmarks.relserve import fresh_rows, published, shared_rows
from benchmarks.relserve import sizes as relserve_sizes
from benchmarks.relserve import traces as relserve_traces
from benchmarks.relserve.benchmark import BENCHMARK
from benchmarks.relserve.clairvoyant import clairvoyant
from benchmarks.relserve.engine import OnEngine
from benchmarks.relserve.simulated import (
    ABLATIONS,
    POLICIES,
    Job,
    Measured,
    run_job,
    saturation,
    serve,
)
from benchmarks.relserve.sizes import QUICK
from benchmarks.relserve.traces import SOURCES, present, trace
from relquery.config import EngineConfig
from relquery.engine.machines import SERVED
from relquery.traces.trace import TASKS, TracedQuery, at_rate
from tests.benchmarks.conftest import Quick, by_name

BEERS = SOURCES[0]
OPT = SERVED["a100-opt13b"]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows each."""
    monkeypatch.setattr(relserve_traces, "EACH", (1, 20))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with some beers in place of the real ones."""
    folder = tmp_path_factory.mktemp("data")
    path = folder / BEERS.file
    path.parent.mkdir()
    rows = range(120)
    table = pa.table(
        {
            "beer/name": [f"beer {row % 9}" for row in rows],
            "beer/brewerId": [row % 4 for row in rows],
            "beer/style": [f"style {row % 5}" for row in rows],
            "beer/ABV": [f"{4 + row % 3}" for row in rows],
            "review/text": [f"A beer of colour {row} and of taste {row * row}. " for row in rows],
        }
    )
    pq.write_table(table, path)
    (folder / "traces").mkdir()
    record = {"input_length": 1_500, "output_length": 9}
    records = [
        {**record, "timestamp": 10 * at, "hash_ids": [at % 3, 10 + at % 5, 20 + at]}
        for at in range(40)
    ]
    for name in published.NAMES:
        lines = "\n".join(map(json.dumps, records))
        (folder / "traces" / f"mooncake_{name}.jsonl").write_text(lines, encoding="utf-8")
    return folder


def job(data: Path, **changes: object) -> Job:
    given = {"model": "a100-opt13b", "table": "ratebeer", "count": 8, "seeds": (0, 1)}
    given |= {"loads": (0.7, 1.2), "folder": data, "sampling": "independent", "bound": True}
    return Job(**{**given, **changes})  # type: ignore[arg-type]


def test_each_table_has_a_question_for_each_kind_of_task(data: Path) -> None:
    for source in SOURCES:
        assert [task.kind for task in source.tasks] == [task.kind for task in TASKS]
        assert len({task.question for task in source.tasks}) == len(TASKS)
    assert present(data) == [BEERS]
    queries = trace(BEERS, data, count=30, seed=3, sampling="independent")
    assert queries == trace(BEERS, data, count=30, seed=3, sampling="independent")
    asked = {query.kind: query for query in queries}
    for task in BEERS.tasks:
        if task.kind in asked:
            names = [line.split(":")[0] for line in asked[task.kind].rows[0].splitlines()[:-1]]
            assert names == list(task.columns)


def test_a_setting_is_served_under_every_policy_at_every_load(data: Path) -> None:
    measured = run_job(job(data))
    assert set(measured.means) == {0.7, 1.2}
    for means in measured.means.values():
        assert tuple(means) == POLICIES
    assert set(measured.bounds) == {1.2}
    for name, parts in measured.parts.items():
        assert sum(parts) == pytest.approx(measured.highest[name], rel=0.2)
    assert measured.over("fcfs") == measured.highest["fcfs"] / measured.best(1.2)
    assert measured == run_job(job(data)), "the same job gives the same figures"


def test_shared_rows_are_cached_more_and_variants_serve_the_highest_load(data: Path) -> None:
    given = {"count": 20, "seeds": (0,), "bound": False}
    own = run_job(job(data, **given))
    shared = run_job(job(data, sampling="shared", variants=ABLATIONS, **given))
    assert shared.hit_rate > own.hit_rate + 0.1
    assert shared.saturation > own.saturation
    assert not shared.bounds
    assert tuple(shared.means[0.7]) == POLICIES
    assert tuple(shared.highest) == (*POLICIES, *ABLATIONS)


def arriving(data: Path, count: int, seed: int) -> list[TracedQuery]:
    return trace(BEERS, data, count=count, seed=seed, sampling="independent")


def test_static_priorities_with_mixed_chunks_finish_sooner_than_either_alone(data: Path) -> None:
    few = replace(OPT, limits=replace(OPT.limits, max_num_seqs=16))
    queries = list(at_rate(arriving(data, 30, 1), 15))
    chunked = serve(queries, "static-chunked", few)
    assert len(chunked.outcomes) == 30
    for other in ("static", "sarathi"):
        assert sum(chunked.latencies()) < sum(serve(queries, other, few).latencies())


def test_saturation_is_what_fcfs_serves_when_all_come_at_once(data: Path) -> None:
    queries = arriving(data, 10, 0)
    rate = saturation(queries, OPT)
    slow, fast = (serve(list(at_rate(queries, load * rate)), "fcfs", OPT) for load in (0.05, 20))
    assert fast.seconds == pytest.approx(10 / rate, rel=0.1)
    assert slow.seconds > 5 * fast.seconds
    assert max(slow.latencies()) < max(fast.latencies())


def test_the_clairvoyant_is_told_the_lengths(data: Path) -> None:
    queries = list(at_rate(arriving(data, 30, 1), 15))
    bound = clairvoyant([queries], OPT)
    fcfs = serve(queries, "fcfs", OPT).latencies()
    assert bound < sum(fcfs) / len(fcfs)


def measured(fcfs: float, static: float, relserve: float, table: str = "ratebeer") -> Measured:
    seconds = (fcfs, fcfs, static, 6.0, relserve, 5.0, 9.0, 9.0, 9.0, 9.0)
    means = dict(zip((*POLICIES, *ABLATIONS), seconds, strict=True))
    even = dict.fromkeys(POLICIES, 5.0)
    parts = dict.fromkeys(POLICIES, (1.0, 2.0, 3.0))
    return Measured(
        "a100-opt13b", table, 8, 1.5, 99.0, 0.3, {0.7: even, 1.2: means}, {1.2: 4.0}, parts
    )


def test_gains_are_of_the_highest_load_and_of_the_better_policy() -> None:
    settings = [measured(20.0, 10.0, 8.0), measured(12.0, 5.0, 4.0, "movies")]
    assert by_name(shared_rows.gains(settings)) == {
        "fcfs_over_ours": 3.5,
        "fcfs_over_ours_least": 3.0,
        "static_over_ours_least": 1.25,
        "static_chunked_over_ours": pytest.approx((6 / 5 + 6 / 4) / 2),
        "static_over_relserve": 1.25,
        "least_gain": 1.0,
        "relserve_over_shortest": pytest.approx((1.6 + 0.8) / 2),
    }


def test_fresh_rows_are_held_against_the_clairvoyant() -> None:
    settings = [measured(20.0, 10.0, 8.0), measured(12.0, 5.0, 4.0, "movies")]
    assert by_name(fresh_rows.figures(settings)) == {
        "ours_over_clairvoyant": 1.25,
        "fresh_fcfs_over_ours": 3.5,
    }


@pytest.fixture(scope="module")
def on_this_machine(data: Path) -> OnEngine:
    """Few short relQueries on a tiny network."""
    small = EngineConfig(max_num_batched_tokens=256, max_num_seqs=8, cache_tokens=1_024)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(relserve_traces, "EACH", (1, 6))
        patch.setattr(relserve_engine, "LIMITS", small)
        spec = "random:layers=1,hidden=16,heads=1"
        return relserve_engine.measure(spec, 3, data, 0, lambda text: None)


def test_a_network_serves_the_same_answers_under_every_policy(
    data: Path, on_this_machine: OnEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = on_this_machine
    assert set(at.runs) == set(relserve_engine.POLICIES)
    assert at.equal == 1.0
    monkeypatch.setattr(relserve_traces, "EACH", (1, 6))
    queries = trace(BEERS, data, count=3, seed=0, sampling="shared")
    lengths = [n for query in queries for n in query.outputs]
    for run in at.runs.values():
        assert [len(run.outputs[number]) for number in range(len(lengths))] == lengths
        assert 0 < run.overhead < 1
        assert run.mean <= run.seconds
    figures = {figure.name: figure for figure in relserve_engine.figures(at)}
    assert figures["engine_equal_answers"].value == 1.0
    static = replace(at.runs["static"], outputs={**at.runs["static"].outputs, 0: (1,)})
    assert replace(at, runs={**at.runs, "static": static}).equal < 1.0


def test_thresholds_and_absolute_rates_are_simulated(data: Path) -> None:
    rows = relserve_checks.thresholds(data, (0,), 0.85, count=6)
    assert [row.seconds for row in rows] == list(relserve_checks.THRESHOLDS)
    assert rows[-1].unit_waiting <= rows[0].unit_waiting
    simulated, took, requests = relserve_checks.hour(data, 0, seconds=30)
    assert simulated > 20
    assert took > 0
    assert requests > 20


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, on_this_machine: OnEngine) -> None:
    """A quick run of a second or two, in this process."""
    sizes = replace(QUICK, count=4, long=4, hour=5.0, relqueries=3, steps=5)
    monkeypatch.setattr(relserve_sizes, "QUICK", sizes)
    monkeypatch.setattr(relserve_engine, "measure", lambda *given: on_this_machine)
    monkeypatch.setattr(shared_rows, "run_all", lambda jobs, workers: map(run_job, jobs))
    monkeypatch.setattr(fresh_rows, "run_all", lambda jobs, workers: map(run_job, jobs))


@pytest.mark.usefixtures("tiny")
def test_a_quick_run_judges_gains_and_answers_and_writes_all_parts(
    data: Path, quick: Quick, tmp_path: Path
) -> None:
    figures, text = quick(BENCHMARK, data=data)
    judged = {name for name, figure in figures.items() if figure.holds is not None}
    assert judged == {"least_gain", "engine_equal_answers"}
    assert figures["engine_equal_answers"].holds
    assert "4 relQueries per trace" in text
    assert "300 requests waiting in 3\nrelQueries" in text
    for name in ("latencies", "arrangements", "thresholds"):
        assert f"(relserve_{name}.png)" in text
        assert (tmp_path / f"relserve_{name}.png").read_bytes().startswith(b"\x89PNG")


def test_published_traces_are_served_under_ours_and_the_policies_of_others(
    data: Path, quick: Quick
) -> None:
    figures, text = quick(BENCHMARK, "published", data=data)
    for name in published.NAMES:
        assert f"{name}_mean_gain" in figures
        rows = [line.split("|")[2].strip() for line in text.splitlines() if f"| {name} |" in line]
        assert tuple(rows) == published.POLICIES
    assert "first 100 requests" in text


@pytest.mark.usefixtures("tiny")
def test_without_tables_the_queue_is_measured_alone(tmp_path: Path) -> None:
    said: list[str] = []
    run = Settings(quick=True, data=tmp_path / "absent", write=tmp_path)
    figures = list(BENCHMARK.start(run, said.append))
    assert [figure.name for figure in figures] == ["crowded_step_ms", "crowded_most_ms"]
    assert "none of the tables" in said[0]
    assert (tmp_path / "relserve.md").exists()
