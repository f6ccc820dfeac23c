"""Hit rates are counted on text, and orders compared with the optimum."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.reorder.evolved import kept_hits
from benchmarks.reorder.hits import hit_rate, measure, prompts
from benchmarks.reorder.optimum import Small, compare
from benchmarks.reorder.tables import RealTable
from relquery.reordering.reorder import reorder

PAIRS = RealTable("squad", "nowhere.csv", 0.5, None, 0.5, bags=(("first", "second"),))


def passages(rows: int) -> pa.Table:
    """Questions with two passages, the same ones in either place."""
    texts = [f"{word} " * 12 for word in ("alpha", "beta", "gamma", "delta")]
    return pa.table(
        {
            "question": [f"what is {row}" for row in range(rows)],
            "first": [texts[row % 3] for row in range(rows)],
            "second": [texts[(row + 1 + row % 2) % 4] for row in range(rows)],
        }
    )


def slow_hit_rate(texts: list[str]) -> float:
    """By the definition: the longest prefix in common with any text sent before."""

    def shared(a: str, b: str) -> int:
        size = min(len(a), len(b))
        return next((i for i in range(size) if a[i] != b[i]), size)

    hits = sum(
        max((shared(text, before) for before in texts[:at]), default=0)
        for at, text in enumerate(texts)
    )
    return hits / max(sum(map(len, texts)), 1)


@given(st.lists(st.text("ab", max_size=6), max_size=12))
def test_the_hit_rate_counts_the_longest_prefix_shared_with_any_text_before(
    texts: list[str],
) -> None:
    assert hit_rate(texts) == pytest.approx(slow_hit_rate(texts))


def test_prompts_are_labelled_cells_in_the_order_sent() -> None:
    table = pa.table({"q": ["x", "y"], "first": [1, 2], "second": ["p", None]})
    schedule = reorder(table, "original")
    sent = prompts(table, [["first", "second"]], schedule, "Ask.", ";")
    assert sent == ["Ask.q: x;passage: 1;passage: p;", "Ask.q: y;passage: 2;passage: ;"]


def test_the_hit_rate_on_text_is_the_one_that_each_method_reports() -> None:
    for reached in measure(PAIRS, passages(40), repeats=1):
        assert reached.hit_rate == pytest.approx(reached.reported, abs=1e-3)
        assert 0 < reached.seconds <= reached.wall


def test_the_shortfall_is_the_share_of_the_optimum_that_tree_misses() -> None:
    small = compare(PAIRS, passages(40), 12)
    assert small.rows == 12
    best = small.reports["ophr"]
    assert best is not None
    assert all(report.phc <= best.phc for report in small.reports.values() if report)
    halved = reorder(passages(12), "original").report
    missed = Small("x", 12, {"ophr": best, "tree": halved}).shortfall
    assert missed == pytest.approx(1 - halved.phc / best.phc)
    assert missed is not None
    assert missed > 0


def test_an_optimum_that_is_not_proved_gives_no_shortfall() -> None:
    small = compare(PAIRS, passages(1200), 1100)
    assert small.reports["ophr"] is None
    assert small.shortfall is None


def test_rows_that_a_program_has_changed_count_as_missed() -> None:
    table = ["abx", "aby", "abz"]
    assert kept_hits(["abx", "aby", "abz"], table) == pytest.approx(4 / 9)
    assert kept_hits(["bxa", "bya", "abz"], table) == pytest.approx(1 / 9)
    assert kept_hits(["ab", "ab", "ab"], table) == 0
    assert kept_hits(["abx", "abx", "abx"], table) == 0
    assert kept_hits(["abx", "aby", "abababab"], table) == pytest.approx(2 / 9)
