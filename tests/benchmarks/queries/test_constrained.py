"""Answers under a schema are compared with free text of the same length, and checked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.harness import Settings
from benchmarks.queries import sizes
from benchmarks.queries.benchmark import BENCHMARK
from benchmarks.queries.constrained.answers import Measured, is_valid
from relquery.prompt import Answer, Finish

VALID = '{"title":"A","year":1999,"genre":"drama","recommended":true,"stars":5}'


def test_a_run_finds_all_answers_valid_and_as_long_as_the_free_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = replace(sizes.QUICK, model="random:layers=1,hidden=32,heads=2", structs=3)
    monkeypatch.setattr(sizes, "QUICK", tiny)
    monkeypatch.setattr("relquery.model.networks.stock.set_threads", lambda count: None)
    settings = Settings(quick=True, data=tmp_path, parts=("constrained",), write=tmp_path)
    found = {figure.name: figure for figure in BENCHMARK.start(settings, lambda text: None)}
    assert found["constrained_valid"].value == 1
    assert "at a small size" in found["constrained_over_free"].note
    assert "3 rows" in (tmp_path / "queries.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "text",
    [
        VALID[:-1],
        VALID.replace('"A"', f'"{"A" * 25}"'),
        VALID.replace("1999", "19.5"),
        VALID.replace("1999", "2100"),
        VALID.replace("drama", "dram"),
        VALID.replace("true", "1"),
        VALID.replace("5}", "0}"),
        VALID.replace('"title"', '"name"'),
        "[]",
        None,
    ],
)
def test_an_answer_that_breaks_its_type_is_not_valid(text: str | None) -> None:
    assert is_valid(Answer(VALID, Finish.STOP))
    assert not is_valid(Answer(VALID, Finish.LENGTH))
    assert not is_valid(Answer(text, Finish.STOP))


def test_medians_are_compared() -> None:
    at = Measured((1.0, 9.0, 2.0), (4.0, 1.0, 5.0), 3.0, (Answer(VALID, Finish.STOP),) * 2)
    assert at.over_free == 0.5
    assert at.valid == 1
