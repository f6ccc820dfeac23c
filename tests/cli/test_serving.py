"""Traces, simulation and calibration on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relquery.backends.local.embedded import EmbeddedBackend
from relquery.engine.cost import Fit, LinearCost
from relquery.engine.machines import find_machine
from tests.cases import cases
from tests.cli.conftest import Run

MODEL = "random:layers=1,hidden=32,heads=1,context=1024"


@pytest.fixture
def day(relquery: Run, tmp_path: Path) -> Path:
    file = tmp_path / "day.jsonl"
    options = ["--count", 12, "--rows", "1,6", "--rate", 2, "-o", file]
    _, told = relquery("trace", "demo:movies", "b=demo:products", *options)
    assert "12 relQueries of 5 types" in told
    return file


def test_a_trace_is_simulated_under_each_policy(relquery: Run, day: Path) -> None:
    command = ("simulate", "--trace", day, "--policy", "fcfs,relserve")
    shown, _ = relquery(*command)
    assert "12 relQueries" in shown
    lines = [line.split("│") for line in shown.splitlines() if "│" in line]
    assert [line[0].strip() for line in lines] == [
        name for policy in ("fcfs", "relserve") for name in (policy, "waiting", "core", "tail")
    ]
    assert all(len(line) == 7 and line[4].strip() for line in lines), "each with its maximum"


def test_figures_come_as_json_and_repeat(relquery: Run, day: Path) -> None:
    command = ["simulate", "-t", day, "-p", "shortest,static", "--json", "--faster", 3]
    first, _ = relquery(*command)
    figures = json.loads(first)
    assert list(figures) == ["shortest", "static"]
    parts = [figures["static"][part]["mean"] for part in ("waiting", "core", "tail")]
    assert figures["static"]["total"]["mean"] == pytest.approx(sum(parts))
    assert figures["static"]["relqueries"] == 12
    assert relquery(*command)[0] == first


def test_starvation_aging_and_weights_reach_the_policies(relquery: Run, day: Path) -> None:
    tenants = day.with_name("tenants.jsonl")
    queries = [json.loads(line) for line in day.read_text(encoding="utf-8").splitlines()]
    for number, query in enumerate(queries):
        query["tenant"] = "ab"[number % 2]
    tenants.write_text("\n".join(map(json.dumps, queries)), encoding="utf-8")
    options = ("-p", "shortest", "--json", "--faster", 50, "--cache-tokens", 1_024)
    command = ("simulate", "-t", tenants, *options)
    plain, _ = relquery(*command)
    for more in (("--starvation", 0.05), ("--aging", 50), ("--weight", "a=0.001")):
        assert relquery(*command, *more)[0] != plain, more


def test_requests_that_cannot_be_served_are_told(relquery: Run, day: Path) -> None:
    query = json.loads(day.read_text(encoding="utf-8").splitlines()[0])
    query["rows"], query["outputs"] = ["word " * 9_000, "short"], [1, 1]
    with day.open("a", encoding="utf-8") as file:
        file.write(json.dumps(query))
    shown, told = relquery("simulate", "-t", day, "-p", "fcfs", "--cache-tokens", 8_192, code=3)
    assert "13 relQueries" in shown
    assert "1 requests got no answer" in told


def test_a_published_trace_is_simulated(relquery: Run, tmp_path: Path) -> None:
    published, ours = tmp_path / "published.jsonl", tmp_path / "ours.jsonl"
    record = {"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [1, 2]}
    later = {**record, "timestamp": 2000, "hash_ids": [1, 3]}
    published.write_text(f"{json.dumps(record)}\n{json.dumps(later)}\n")
    assert "2 requests, 2 s" in relquery("trace", "import", published, "-o", ours)[1]
    options = ("-p", "fcfs", "--json", "--cache-tokens", 8192)
    shown, _ = relquery("simulate", "-t", ours, *options)
    assert json.loads(shown)["fcfs"]["hit_rate"] == pytest.approx(512 / 1200)


def test_calibration_writes_a_machine(relquery: Run, day: Path, tmp_path: Path) -> None:
    file = tmp_path / "here.json"
    shown, _ = relquery("calibrate", MODEL, "-o", file, "--cache-tokens", 2048)
    assert all(said in shown for said in ("per prompt token", "R²"))
    assert find_machine(str(file)).cost.prefill_slope > 0
    for policy in ("srjf", "relserve"):
        assert policy in relquery("simulate", "-t", day, "-c", file, "-p", policy)[0]


def test_a_wrong_option_is_named(relquery: Run, day: Path) -> None:
    for options, message in cases(__file__, "wrong"):
        assert message in relquery("simulate", "-t", day, *options.split(), code=1)[1]
    empty = day.with_name("empty.jsonl")
    empty.write_text("")
    assert "has no requests" in relquery("simulate", "-t", empty, code=1)[1]


def test_a_wrong_workload_is_refused(relquery: Run, tmp_path: Path) -> None:
    for options, message in cases(__file__, "refused"):
        command = ["trace", "demo:movies", *options.split(), "-o", tmp_path / "x.jsonl"]
        assert message in relquery(*command, code=1)[1]


def test_relqueries_of_a_trace_may_share_their_rows(relquery: Run, tmp_path: Path) -> None:
    distinct = {}
    for sampling in ("independent", "shared"):
        file = tmp_path / f"{sampling}.jsonl"
        options = ["--count", 6, "--rows", "5,5", "-c", "movietitle", "--sampling", sampling]
        relquery("trace", "demo:movies", *options, "-o", file)
        lines = file.read_text(encoding="utf-8").splitlines()
        distinct[sampling] = len({tuple(json.loads(line)["rows"]) for line in lines})
    assert distinct == {"independent": 6, "shared": 1}


def test_a_provider_cannot_be_calibrated(relquery: Run) -> None:
    assert "provider" in relquery("calibrate", "openai:gpt-5", code=1)[1]


def test_a_bad_cost_model_is_told(relquery: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for score, is_told in ((0.5, True), (0.95, False)):
        fit = Fit(LinearCost(), 40, 0.99, score)
        monkeypatch.setattr(EmbeddedBackend, "calibrate", lambda self, fit=fit, **options: fit)
        shown, told = relquery("calibrate", "random:layers=1,hidden=16,heads=1")
        assert ("predicts badly (R² 0.50)" in told) == is_told
        assert "Pearson" not in shown
