"""The reorder benchmark: its document, how seconds grow, and what prompts cost."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.harness import Settings
from benchmarks.reorder import benchmark as bench
from benchmarks.reorder.growth import exponent, last_step, peak_bytes, synthetic
from benchmarks.reorder.prices import ASKS, bills, estimate, repeat
from benchmarks.reorder.tables import TABLES
from relquery.reordering.cost.tokens import EstimatedTokens
from relquery.reordering.reorder import reorder
from tests.benchmarks.reorder.test_hits import PAIRS, passages


@pytest.mark.parametrize("has_matplotlib", [True, False])
def test_without_tables_the_benchmark_measures_the_rest_and_says_what_is_absent(
    has_matplotlib: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "QUICK_SIZES", (50, 100))
    if not has_matplotlib:
        monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    said: list[str] = []
    folder = tmp_path / "out"
    run = Settings(quick=True, data=tmp_path / "absent", seed=7, write=folder)
    figures = {figure.name: figure for figure in bench.run(run, said.append)}
    assert all(figure.value is None for figure in figures.values())
    for table in TABLES:
        assert table.file in figures[f"{table.name}_seconds"].note
    assert "for up to 100 rows" in figures["million_rows_gib"].note
    pictures = {"reorder_growth.png", "reorder_gain.png"} if has_matplotlib else set()
    assert {path.name for path in folder.iterdir()} == {"reorder.md", *pictures}
    assert all((folder / name).read_bytes().startswith(b"\x89PNG") for name in pictures)
    assert any("pip install relquery[bench]" in each for each in said) is not has_matplotlib
    text = (folder / "reorder.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\((\w+\.png)\)", text)) == pictures
    assert "seed 7" in text


def test_the_synthetic_table_repeats_and_is_skewed_and_correlated() -> None:
    table = synthetic(3_000, seed=1)
    assert table.equals(synthetic(3_000, seed=1))
    assert not table.equals(synthetic(3_000, seed=2))
    assert table.shape == (3_000, 10)
    distinct = {name: len(table[name].unique()) for name in table.column_names}
    assert distinct["note"] == 3_000
    cities = table.group_by("city").aggregate([("state", "count_distinct"), ("note", "count")])
    assert set(cities["state_count_distinct"].to_pylist()) == {1}
    assert max(cities["note_count"].to_pylist()) > 20 * 3_000 / distinct["city"]


@pytest.mark.parametrize("power", [0.9, 1.0, 1.3])
def test_the_exponent_is_the_power_of_n_log_n(power: float) -> None:
    sizes = [1_000, 10_000, 100_000]
    seconds = [1e-6 * (size * math.log(size)) ** power for size in sizes]
    assert exponent(sizes, seconds) == pytest.approx(power)


def test_the_last_step_is_1_for_n_log_n_and_above_for_what_grows_faster() -> None:
    sizes = [10_000, 1_000_000, 10_000_000]
    assert last_step(sizes, [size * math.log(size) for size in sizes]) == pytest.approx(1)
    quadratic = [5 + 1e-12 * size**2 for size in sizes]  # below n log n but for the last step
    assert exponent(sizes[:2], quadratic[:2]) < 0.1
    assert last_step(sizes, quadratic) > 1.3


def test_a_fresh_process_tells_the_most_memory_that_it_held() -> None:
    held = np.ones(2**27)  # what the process that starts it holds does not count
    assert 2**26 < peak_bytes(50, 0) < 2**29 < held.nbytes


def test_values_are_repeated_as_text() -> None:
    table = repeat(pa.table({"a": [1, None], "b": ["x", "y"]}), 3)
    assert table.to_pydict() == {"a": ["1 1 1", "  "], "b": ["x x x", "y y y"]}


def test_estimates_are_those_of_the_paper_at_its_hit_rates() -> None:
    shares = estimate({"movies": (0.346, 0.857), "beer": (0.499, 0.801)})["gpt-4o-mini"]
    assert [f"{share:.0%}" for share in shares] == ["31%", "20%"]


@pytest.mark.parametrize("price", ["deepseek-flash", "claude-opus-5"])
def test_bills_count_what_the_schedule_itself_is_billed(price: str) -> None:
    rows = repeat(passages(24), 40 if price == "claude-opus-5" else 5)
    encode, ask = EstimatedTokens(), ASKS["squad"]
    found = bills(PAIRS, rows, [price, "gpt-4o-mini"], encode)
    schedule = reorder(rows, "tree", (), PAIRS.bags, price, tokenizer=encode, prefix=ask)
    assert schedule.report.bill is not None
    assert found[0].of["tree by price"].usd == pytest.approx(schedule.report.bill.usd)
    assert found[0].saved("original") == 0 < found[0].saved("tree by price")
    assert found[0].over("ggr") <= 1
    assert found[1].of["original"].read == 0  # prompts are shorter than what is cached
