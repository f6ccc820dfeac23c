"""The engine's benchmark runs without vLLM, and measures what it says."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from benchmarks.engine import sizes as engine_sizes
from benchmarks.engine.benchmark import BENCHMARK
from benchmarks.engine.jobs import Job, measures
from benchmarks.engine.network import make_network
from benchmarks.engine.sides import OURS, VLLM, Raced, Seat, Side, race, started
from benchmarks.engine.sizes import FULL
from relquery.errors import RelqueryError
from tests.benchmarks.conftest import Quick

CACHE = 2**24
"""Bytes."""
TINY = replace(
    FULL, layers=1, hidden=32, heads=1, intermediate=64, vocabulary=300, prefill=(2, 20),
    batches=(1, 2), start=8, steps=3, shared=20, own=5, hot=30, new=5, rounds=1, seconds=0.01,
)  # fmt: skip


def test_a_quick_run_measures_our_side_alone(quick: Quick, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_sizes, "QUICK", TINY)
    figures, text = quick(BENCHMARK, data=Path("nowhere"))
    assert figures["prefill_bfloat16"].value is None, "there is nothing to compare with"
    assert "tokens/s / -" in figures["decode_2_float32"].note
    assert figures["decode_1_over_transformers_float32"].holds is not None
    assert "| decode 2 shared | float32 |" in text


def test_a_workers_output_is_as_long_as_asked_and_its_cache_begins_empty(tmp_path: Path) -> None:
    make_network(tmp_path / "model", TINY, tmp_path, seed=0)
    seat = Seat(OURS, OURS, Path(sys.executable), "float32", CACHE)
    prefill, *_ = measures(TINY, seed=0)
    with started([seat], tmp_path / "model", tmp_path) as (side,):
        assert len(race([side], prefill, "float32", rounds=3).seconds[OURS]) == 3
        seconds, answers = side.answer(Job([[5, 6, 7]], 4, before=[[5, 6]]))
        assert seconds > 0
        assert list(map(len, answers)) == [4]


def test_a_side_that_ends_says_why(tmp_path: Path) -> None:
    seat = Seat(OURS, OURS, Path(sys.executable), "float32", CACHE)
    with (
        Side(seat, tmp_path / "none", tmp_path / "log") as side,
        pytest.raises(RelqueryError, match="none does not exist"),
    ):
        side.read()


def test_jobs_are_those_of_the_document() -> None:
    made = {each.name: each for each in measures(FULL, seed=0)}
    assert [len(prompt) for prompt in made["prefill"].job.prompts] == [1_024] * 16
    shared = made["decode_64_shared"].job
    assert {tuple(prompt[:1_024]) for prompt in shared.prompts} == {tuple(shared.before[0][:1_024])}
    assert {len(prompt) for prompt in shared.prompts} == {1_088}
    assert made["hot"].job.prompts[0][:5_000] == made["hot"].job.before[0]
    json.dumps([asdict(each.job) for each in made.values()])


def test_a_ratio_is_the_median_of_the_rounds() -> None:
    raced = Raced("decode_1", "float32", 10, {OURS: [1.0, 2.0, 4.0], VLLM: [3.0, 2.0, 2.0]})
    assert raced.ratio(VLLM) == 1.0
    assert raced.ratio(VLLM, ours="another") is None
    assert (raced.shown(OURS), raced.shown(VLLM)) == ("5 tokens/s", "5 tokens/s")
