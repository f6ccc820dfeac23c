"""How counts of tokens are corrected by what a provider has billed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.sql.explain.cost import UNSEEN, Calibration


def test_without_usage_counts_stay_as_they_are() -> None:
    assert Calibration.of([], []) == Calibration(1.0, UNSEEN, 0)
    assert Calibration.of([100, 200], [0, 0]) == Calibration(1.0, UNSEEN, 0)
    assert "are estimated from words" in str(Calibration())


def test_the_factor_is_the_ratio_of_the_sums() -> None:
    found = Calibration.of([100, 300, 50], [130, 390, 0])
    assert found.factor == pytest.approx(1.3)
    assert found.answers == 2
    assert found.error == 0.01  # no spread at all
    assert "1.30 tokens" in str(found)


def test_a_single_answer_and_answers_that_differ_widen_the_error() -> None:
    assert Calibration.of([100], [140]).error == 0.1
    narrow = Calibration.of([100] * 10, [119, 121] * 5)
    wide = Calibration.of([100] * 10, [90, 150] * 5)
    assert narrow.factor == wide.factor == pytest.approx(1.2)
    assert narrow.error < 0.02 < wide.error


@given(st.lists(st.integers(50, 500), min_size=2, max_size=50), st.floats(0.5, 2.0))
def test_a_tokenizer_with_a_fixed_overhead_is_met_within_the_error(
    counts: list[int], factor: float
) -> None:
    billed = [round(factor * count) + 7 for count in counts]
    found = Calibration.of(counts, billed)
    assert sum(billed) == pytest.approx(found.factor * sum(counts))
