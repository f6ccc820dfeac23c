"""`python -m benchmarks.gpu`, in Triton's interpreter, with no more packages than such a machine
may have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.gpu.jobs import filter_jobs, module_jobs
from benchmarks.gpu.sizes import QUICK
from benchmarks.gpu.timing import Budget, in_turns, ratios

pytest.importorskip("triton")
MISSING = "duckdb", "greenlet", "llguidance", "openai", "prompt_toolkit"
ROOT = Path(__file__).parents[2]


def test_every_part_runs_without_a_gpu_and_without_packages_that_it_does_not_need(
    tmp_path: Path,
) -> None:
    blocked = "import sys\n" + "".join(f"sys.modules[{name!r}] = None\n" for name in MISSING)
    (tmp_path / "sitecustomize.py").write_text(blocked)
    path = os.pathsep.join([str(tmp_path), str(ROOT / "src")])
    environment = {**os.environ, "PYTHONPATH": path, "OUT": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.gpu", "--quick", "--device", "cpu"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=500)
    found = json.loads((tmp_path / "gpu.json").read_text())["found"]
    parts = Counter(each["part"] for each in found)
    assert parts == {"modules": 6, "spans": 2, "store": 1, "filter": 1, "jobs": 4, "vllm": 1}
    assert [each["name"] for each in found if "left_out" in each] == ["vllm"]
    raced = [each for each in found if "ratios" in each]
    assert all(s > 0 for each in raced for side in each["seconds"].values() for s in side)
    assert all(len(each["ratios"]) == len(each["seconds"]) - 1 for each in raced)


def test_both_orders_of_the_filter_ask_the_same() -> None:
    jobs = filter_jobs(QUICK, seed=0)
    ours, table = (
        Counter(tuple(sorted(prompt)) for prompt in jobs[name].prompts)
        for name in ("ours", "table")
    )
    assert ours == table


def test_modules_are_the_same_tokens_as_the_text() -> None:
    jobs = module_jobs(QUICK, seed=0, tokens=3)
    (chain,), (text,) = jobs["modules"].prompts, jobs["text"].prompts
    *spans, question = chain.parts  # type: ignore[attr-defined]
    assert [int(t) for span in spans for t in span.parts[0]] + question.tolist() == text
    assert sorted(map(tuple, jobs["modules"].before)) == sorted(
        tuple(span.parts[0].tolist()) for span in spans
    )


def test_sides_take_turns_until_the_time_is_over() -> None:
    asked: list[str] = []

    def side(name: str, seconds: float) -> float:
        asked.append(name)
        return seconds

    sides = {"one": lambda: side("one", 2.0), "other": lambda: side("other", 3.0)}
    found = in_turns(sides, 2, Budget(60.0))
    assert asked == ["other", "one", "one", "other", "other", "one"]
    assert found == {"one": [2.0, 2.0], "other": [3.0, 3.0]}
    assert ratios(found) == {"other": 1.5}
    assert in_turns(sides, 2, Budget(0.0)) == {"one": [2.0], "other": [3.0]}
