"""Traces, simulation and calibration on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relquery.backends.local.embedded import EmbeddedBackend
from relquery.engine.cost.fit import Fit
from relquery.engine.cost.linear import LinearCost
from relquery.engine.cost.machines import find_machine
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
    plot = day.with_suffix(".png")
    command = ("simulate", "--trace", day, "--policy", "fcfs,relserve")
    shown, _ = relquery(*command, "--plot", plot)
    assert plot.read_bytes().startswith(b"\x89PNG")
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


@pytest.mark.long
def test_calibration_writes_what_simulation_reads(relquery: Run, day: Path, tmp_path: Path) -> None:
    file = tmp_path / "here.json"
    shown, _ = relquery("calibrate", MODEL, "-o", file, "--cache-tokens", 2048)
    assert "per prompt token" in shown
    assert "R²" in shown
    simulated, _ = relquery("simulate", "-t", day, "-c", file, "-p", "relserve")
    assert "relserve" in simulated
    assert "Pearson" not in shown
    assert find_machine(str(file)).job_time is None


def test_calibration_times_prompts_on_demand(relquery: Run, day: Path, tmp_path: Path) -> None:
    file = tmp_path / "here.json"
    options = ("--cache-tokens", 2048, "--longest-prompt", 96)
    shown, _ = relquery("calibrate", MODEL, "-o", file, *options)
    assert "Pearson's r" in shown
    assert find_machine(str(file)).job_time is not None
    simulated, _ = relquery("simulate", "-t", day, "-c", file, "-p", "srjf")
    assert "srjf" in simulated
    assert "at most 1024" in relquery("calibrate", MODEL, "--longest-prompt", 5000, code=1)[1]


WRONG: list[tuple[str, str]] = [
    ("--policy lifo", "policy 'lifo' is not known"),
    ("--cost a100-opt", "cost model 'a100-opt' is not known"),
    ("--faster 0", "above 0"),
    ("--faster nan", "above 0 and finite"),
    ("--starvation -1", "starvation is -1"),
    ("--aging nan", "aging is nan"),
    ("--weight a", "write TENANT=NUMBER"),
    ("--weight a=0", "must be above 0"),
    ("--plot day.txt", "--plot day.txt must end in .png"),
]
REFUSED: list[tuple[str, str]] = [
    ("--rows 5", "LEAST,MOST"),
    ("--rows 5,2", "LEAST must be at least 1"),
    ("--rate 0", "above 0"),
    ("--sampling share", "Known: independent, shared. Did you mean 'shared'?"),
    ("demo:movies", "Two tables are named"),
]


def test_a_wrong_option_is_named(relquery: Run, day: Path) -> None:
    for options, message in WRONG:
        assert message in relquery("simulate", "-t", day, *options.split(), code=1)[1]
    empty = day.with_name("empty.jsonl")
    empty.write_text("")
    assert "has no requests" in relquery("simulate", "-t", empty, code=1)[1]


def test_a_wrong_workload_is_refused(relquery: Run, tmp_path: Path) -> None:
    for options, message in REFUSED:
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
    fits = iter([Fit(LinearCost(), 40, 0.99, 0.5), Fit(LinearCost(), 40, 0.99, 0.95)])
    monkeypatch.setattr(EmbeddedBackend, "calibrate", lambda self, **options: next(fits))
    model = "random:layers=1,hidden=16,heads=1"
    _, told = relquery("calibrate", model)
    assert "predicts badly (R² 0.50)" in told
    _, told = relquery("calibrate", model)
    assert "badly" not in told
