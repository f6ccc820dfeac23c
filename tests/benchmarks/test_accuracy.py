"""The benchmark of accuracy asks every variant about the same rows, and its intervals are right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

import relquery
from benchmarks.accuracy import part
from benchmarks.accuracy.asking import Answers
from benchmarks.accuracy.benchmark import BENCHMARK
from benchmarks.accuracy.bootstrap import draw
from benchmarks.accuracy.comparison import compare
from benchmarks.accuracy.variants import VARIANTS
from tests.benchmarks.conftest import Quick

DEMO = Path(relquery.__file__).parent / "demo" / "model"


def write(path: Path, **columns: list[str]) -> None:
    path.parent.mkdir(parents=True)
    csv.write_csv(pa.table(columns), path)


def answers(gold: list[bool], said: list[bool], scores: list[float] | None = None) -> Answers:
    return Answers(
        np.array(gold),
        np.array(said),
        np.ones(len(gold), np.bool_),
        None if scores is None else np.array(scores),
        10.0,
    )


def test_a_run_asks_every_variant_and_writes_its_tables(
    tmp_path: Path, quick: Quick, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part, "MODELS", tmp_path / "models")
    (tmp_path / "models").mkdir()
    (tmp_path / "models/smollm2").symlink_to(DEMO)
    signs = ["POSITIVE", "NEGATIVE"] * 4
    texts = [f"review {number} was a joy" for number in range(8)]
    write(tmp_path / "sembench/Reviews.csv", reviewText=texts, scoreSentiment=signs)
    fields = {"Text": texts, "PostId": texts[::-1], "PostDate": ["2011"] * 8, "Body": texts}
    labels = ["YES", "NO"] * 4
    write(tmp_path / "bird/sample100_labelled.csv", **fields, manual_labels=labels)
    figures, page = quick(BENCHMARK)
    names = [variant.name for variant in VARIANTS]
    assert {f"smollm2_posts_{name}" for name in names} <= set(figures)
    asked_once = {"text", "bfloat16", "int8", "int4", "base"}
    assert {name for name in names if f"smollm2_sembench_{name}" in figures} == asked_once
    assert figures["smollm2_answered"].value == 1.0
    assert figures["smollm2_text_tokens"].holds
    assert "scripts/real-models gemma3" in figures["gemma3_answered"].note
    assert "| original |" in page
    assert "smollm2_posts_original" not in page


def test_a_difference_is_taken_row_by_row() -> None:
    gold = [True, False] * 50
    default = answers(gold, [True] * 100)
    other = answers(gold, [True] * 98 + [False] * 2)  # one right answer lost, one gained
    found = compare({"one": other}, {"one": default}, 0)
    assert (found.right.value, found.right_more.value, found.same) == (0.5, 0.0, 0.98)
    assert -0.05 < found.right_more.low < 0 < found.right_more.high < 0.05
    assert found.right.high - found.right.low > 0.16
    assert found.auc is None


def test_an_interval_is_as_wide_as_the_binomial_distribution_says() -> None:
    gold, said = [True] * 400, [True] * 300 + [False] * 100
    right = compare({"one": answers(gold, said)}, {"one": answers(gold, said)}, 1).right
    half = 1.96 * (0.75 * 0.25 / 400) ** 0.5
    assert right.low == pytest.approx(0.75 - half, abs=0.005)
    assert right.high == pytest.approx(0.75 + half, abs=0.005)


def test_auc_counts_pairs_of_rows() -> None:
    gold, scores = [True, True, False, False], [0.9, 0.4, 0.4, 0.1]
    one = {"one": answers(gold, gold, scores)}
    found = compare(one, one, 0)
    assert found.auc is not None
    assert found.auc_more is not None
    assert found.auc.value == 3.5 / 4
    assert (found.auc_more.low, found.auc_more.high) == (0.0, 0.0)


def test_tables_together_count_each_row_once_and_each_tables_auc_once() -> None:
    small = answers([True, False], [True, False], [0.9, 0.1])
    large = answers([True, False] * 4, [False] * 8, [0.5] * 8)
    both = {"small": small, "large": large}
    found = compare(both, both, 0)
    assert found.right.value == pytest.approx(6 / 10)
    assert found.auc is not None
    assert found.auc.value == pytest.approx((1 + 0.5) / 2)


def test_resamples_have_as_many_rows_as_the_sample() -> None:
    drawn = draw(7, (3, 0), 50)
    assert (drawn.sum(axis=1) == 7).all()
    assert (drawn != drawn[0]).any()
