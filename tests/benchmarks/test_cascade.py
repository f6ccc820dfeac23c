"""The benchmark of cascades tests a share as statistics do, and every side answers all rows."""

from __future__ import annotations

import pytest
from scipy.stats import binomtest

from benchmarks.cascade.data import shapes
from benchmarks.cascade.draws import CONFIDENCE, KINDS, holm, ours, too_few
from benchmarks.cascade.rivals import lotus, supg

SMALL = {case.name: case for case in shapes(0, share=0.1)}


@pytest.mark.parametrize("kept", [0, 465, 480, 500])
def test_a_share_is_tested_exactly(kept: int) -> None:
    expected = binomtest(kept, 500, CONFIDENCE, "less").pvalue

    assert too_few(kept, 500) == pytest.approx(expected, rel=1e-6, abs=1e-300)


def test_the_least_of_several_p_values_is_multiplied_by_their_number() -> None:
    assert holm([0.5, 0.004, 0.9]) == pytest.approx(0.012)
    assert holm([0.5, 0.9]) == 1.0


@pytest.mark.parametrize("name", ["sure", "duplicates"])
def test_what_is_not_decided_is_asked_on_all_sides(name: str) -> None:
    case = SMALL[name]
    for kind in KINDS:
        sides = [ours(case, kind, 0), supg(case, kind, 50, 0), lotus(case, kind, 0)]
        for outcome in (one for one in sides if one is not None):
            assert 0 < outcome.calls <= outcome.most == len(case.yes)
            if kind == "precision":
                assert outcome.recall == 1.0
            if kind == "recall":
                assert outcome.precision == 1.0
