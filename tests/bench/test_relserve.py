"""The relserve benchmark serves the same traces under every policy, and says what it found."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from relquery.bench.harness import Benchmark, Figure, Settings, document
from relquery.bench.relserve import benchmark as relserve
from relquery.bench.relserve import checks as relserve_checks
from relquery.bench.relserve import engine as relserve_engine
from relquery.bench.relserve import queue as relserve_queue
from relquery.bench.relserve import traces as relserve_traces
from relquery.bench.relserve.checks import Absolute, Threshold
from relquery.bench.relserve.clairvoyant import clairvoyant
from relquery.bench.relserve.document import Results, render, write
from relquery.bench.relserve.engine import OnEngine
from relquery.bench.relserve.queue import Crowded
from relquery.bench.relserve.simulated import POLICIES, Job, Measured, run_job, saturation, serve
from relquery.bench.relserve.traces import SOURCES, present, trace
from relquery.config import EngineConfig
from relquery.engine.cost import LinearCost
from relquery.engine.costs import SERVED
from relquery.engine.fit import Fit
from relquery.serving.workload import TASKS, at_rate

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
    return folder


def job(data: Path, **changes: object) -> Job:
    given = {
        "model": "a100-opt13b",
        "table": "ratebeer",
        "count": 8,
        "seeds": (0, 1),
        "loads": (0.7, 1.2),
        "policies": POLICIES,
        "bound": True,
        "folder": data,
    }
    return Job(**{**given, **changes})  # type: ignore[arg-type]


def test_each_table_has_a_question_for_each_kind_of_task(data: Path) -> None:
    for source in SOURCES:
        assert [task.kind for task in source.tasks] == [task.kind for task in TASKS]
        assert len({task.question for task in source.tasks}) == len(TASKS)
    assert present(data) == [BEERS]
    queries = trace(BEERS, data, count=30, seed=3)
    assert queries == trace(BEERS, data, count=30, seed=3)
    asked = {query.kind: query for query in queries}
    for task in BEERS.tasks:
        if task.kind in asked:
            names = [line.split(":")[0] for line in asked[task.kind].rows[0].splitlines()[:-1]]
            assert names == list(task.columns)


def test_a_setting_is_served_under_every_policy_at_every_load(data: Path) -> None:
    measured = run_job(job(data))
    assert set(measured.means) == {0.7, 1.2}
    for means in measured.means.values():
        assert set(means) == set(POLICIES)
    assert set(measured.bounds) == {1.2}
    for name, parts in measured.parts.items():
        assert sum(parts) == pytest.approx(measured.highest[name], rel=0.2)
    assert measured.over("fcfs") == measured.highest["fcfs"] / measured.best(1.2)
    assert measured == run_job(job(data)), "the same job gives the same figures"


def test_saturation_is_what_fcfs_serves_when_all_come_at_once(data: Path) -> None:
    queries = trace(BEERS, data, count=10, seed=0)
    rate = saturation(queries, OPT)
    slow, fast = (serve(list(at_rate(queries, load * rate)), "fcfs", OPT) for load in (0.05, 20))
    assert fast.seconds == pytest.approx(10 / rate, rel=0.1)
    assert slow.seconds > 5 * fast.seconds
    assert max(slow.latencies()) < max(fast.latencies())


def test_the_clairvoyant_is_told_the_lengths(data: Path) -> None:
    queries = list(at_rate(trace(BEERS, data, count=30, seed=1), 15))
    bound = clairvoyant([queries], OPT)
    fcfs = serve(queries, "fcfs", OPT).latencies()
    assert bound < sum(fcfs) / len(fcfs)


def measured(
    fcfs: float, static: float, relserve: float, bound: float, table: str = "ratebeer"
) -> Measured:
    means = dict(zip(POLICIES, (fcfs, fcfs, static, relserve, 5.0), strict=True))
    even = dict.fromkeys(POLICIES, 5.0)
    parts = dict.fromkeys(POLICIES, (1.0, 2.0, 3.0))
    return Measured(
        "a100-opt13b", table, 8, 1.5, 99.0, 0.3, {0.7: even, 1.2: means}, {1.2: bound}, parts
    )


def test_gains_are_of_the_highest_load_and_of_the_better_policy() -> None:
    settings = [measured(20.0, 10.0, 8.0, 4.0), measured(12.0, 5.0, 4.0, 4.0, "movies")]
    figures = {figure.name: figure.value for figure in relserve.gains(settings)}
    assert figures == {
        "fcfs_over_ours_least": 3.0,
        "fcfs_over_ours_most": 4.0,
        "static_over_relserve_least": 1.25,
        "static_over_relserve_most": 1.25,
        "static_over_ours_least": 1.25,
        "static_over_ours_most": 2.0,
        "least_gain": 1.0,
        "ours_over_clairvoyant": 1.25,
        "relserve_over_shortest": pytest.approx((1.6 + 0.8) / 2),
    }


def test_a_network_serves_the_same_answers_under_every_policy(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relserve_traces, "EACH", (1, 6))
    small = EngineConfig(max_num_batched_tokens=256, max_num_seqs=8, cache_tokens=1_024)
    monkeypatch.setattr(relserve_engine, "LIMITS", small)
    said: list[str] = []
    at = relserve_engine.measure("random:layers=1,hidden=16,heads=1", 3, data, 0, said.append)
    assert set(at.runs) == set(relserve_engine.POLICIES)
    assert at.equal == 1.0
    lengths = [n for query in trace(BEERS, data, count=3, seed=0) for n in query.outputs]
    for run in (run for rounds in at.runs.values() for run in rounds.runs):
        assert [len(run.outputs[number]) for number in range(len(lengths))] == lengths
        assert 0 < run.scheduling < run.seconds
        assert run.mean <= run.seconds
    figures = {figure.name: figure for figure in relserve.engine_figures(at)}
    assert figures["engine_equal_answers"].value == 1.0
    at.runs["static"].runs[1].outputs[0] = (1,)
    assert at.equal < 1.0
    assert len(said) == 1 + 2 * len(at.runs)


def test_scheduling_is_timed_with_many_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    row = relserve_queue.measure("relserve", relqueries=3, steps=10)
    assert 0 < row.mean <= row.worst
    assert row.first > 0


def test_thresholds_and_absolute_rates_are_simulated(data: Path) -> None:
    rows = relserve_checks.thresholds(data, (0,), 0.85, count=6)
    assert [row.seconds for row in rows] == list(relserve_checks.THRESHOLDS)
    assert rows[-1].unit_waiting <= rows[0].unit_waiting
    simulated, took = relserve_checks.hour(data, 0, seconds=30)
    assert simulated > 20
    assert took > 0


def full() -> Results:
    results = Results(8, 2, "random:x")
    results.settings = [measured(20.0, 10.0, 8.0, 4.0)]
    results.long = results.settings
    results.arrangements = results.settings
    results.thresholds = [Threshold(None, 0.85, 4.0, 20.0, 0.5), Threshold(0.1, 0.85, 5, 9, 0.2)]
    results.absolute = Absolute({0.5: 200.0}, {"fcfs": 30.0, "relserve": 14.0})
    results.engine = OnEngine(Fit(LinearCost(), 9, 0.98, 0.97), 1.0, {})
    results.crowded = [Crowded("fcfs", 0.5, 2.0, 9.0)]
    results.figures = [Figure("x", 1.0, 2.0)]
    return results


def described(results: Results) -> dict[str, object]:
    benchmark = Benchmark("relserve", "", lambda settings, say: iter(()))
    return document(benchmark, Settings(quick=False, data=Path("nowhere")), results.figures)


def test_the_document_shows_all_parts_and_pictures(tmp_path: Path) -> None:
    results = full()
    write(tmp_path, results, described(results), 7, lambda text: None)
    text = (tmp_path / "relserve.md").read_text(encoding="utf-8")
    assert "| `x` | 1 | >= 2 | **no** |" in text
    assert "| a100-opt13b | ratebeer | 99 (30%) | 17% | 4.00 | 1.25 | 2.00 | 1.60 | 1.25 |" in text
    assert "| paper | 202 |" in text
    for name in ("latencies", "arrangements", "parts", "thresholds"):
        assert f"(relserve_{name}.png)" in text
        assert (tmp_path / f"relserve_{name}.png").read_bytes().startswith(b"\x89PNG")


def test_a_document_of_little_has_no_empty_parts() -> None:
    results = Results(8, 2, "random:x", [Figure("x", None, 2.0, note="absent")])
    text = render(results, described(results), 0, set())
    assert "absent" in text
    assert ".png" not in text


def test_without_tables_the_queue_is_measured_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relserve_queue, "STEPS", 5)
    said: list[str] = []
    run = Settings(quick=True, data=tmp_path / "absent", write=tmp_path)
    figures = list(relserve.run(run, said.append))
    assert [figure.name for figure in figures] == ["crowded_step_ms"]
    assert "none of the tables" in said[0]
    assert (tmp_path / "relserve.md").exists()
