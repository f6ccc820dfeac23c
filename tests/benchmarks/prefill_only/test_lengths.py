"""The longest inputs are found by measuring, each way by itself, and end up in figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.prefill_only.lengths import (
    CHUNKED,
    CLOSE,
    DROPPED,
    NAMES,
    OURS,
    PLAIN,
    Lengths,
    Longest,
    Sizes,
    figures,
    fit,
    measure,
)
from tests.benchmarks.conftest import by_name

MIB = 1 << 20
LENGTHS = Lengths(
    sizes=Sizes(),
    weights=100 * MIB,
    free=25 * MIB,
    slices=256,
    longest={
        name: Longest(tokens, 25 * MIB)
        for name, tokens in zip(NAMES, (1_000, 1_600, 2_200, 16_000), strict=True)
    },
    whole=24 * MIB,
    wide=((2.0, 4.0, 5.0), (3.0, 5.0, 8.0)),
    narrow=((2.0,), (4.0,)),
)


@pytest.mark.parametrize("free", [300_000, 1_000_000, 7_654_321])
def test_the_length_found_is_measured_and_nearly_fills_the_memory(free: int) -> None:
    asked = []

    def way(tokens: int) -> int:
        asked.append(tokens)
        return 50_000 + 1_000 * tokens + 300 * (tokens % 7)

    found = fit(way, free, 64)
    assert found.tokens == asked[-1]
    assert CLOSE * free <= found.peak == way(found.tokens) <= free
    assert len(asked) <= 5


def test_a_bend_in_the_line_is_followed() -> None:
    found = fit(lambda tokens: 1_000 * tokens + max(0, tokens - 500) ** 2 // 10, 5_000_000, 64)
    assert CLOSE * 5_000_000 <= found.peak <= 5_000_000


@pytest.mark.parametrize("free", [100_000, 1_234_567, 9_999_999])
def test_where_memory_grows_in_steps_one_more_token_would_not_fit(free: int) -> None:
    def way(tokens: int) -> int:
        return 20_000 * -(-tokens // 16) + 30_000

    found = fit(way, free, 64)
    assert found.peak == way(found.tokens) <= free
    assert found.peak >= CLOSE * free or way(found.tokens + 1) > free


def test_a_memory_that_no_length_fills_is_told() -> None:
    with pytest.raises(AssertionError, match="no length was found"):
        fit(lambda tokens: 1_000_000, 1_000, 64)


def test_a_small_network_tells_the_techniques_apart() -> None:
    said: list[str] = []
    small = "random:layers=8,hidden=32,heads=4,kv_heads=2,ffn=170"
    sizes = Sizes(small, small, memory=2.0, rounds=1, narrow_rounds=1)
    at = measure(sizes, said.append)
    longest = [at.tokens(name) for name in (PLAIN, DROPPED, OURS)]
    assert longest == sorted(longest)
    assert at.tokens(PLAIN) < at.tokens(CHUNKED) < at.tokens(OURS)
    assert all(0.9 * at.free <= each.peak <= at.free for each in at.longest.values())
    assert at.whole > 0
    assert [len(runs) for race in (at.wide, at.narrow) for runs in race] == [1] * 4
    assert len(said) == 5


def test_figures_are_ratios_of_what_was_measured() -> None:
    found = list(figures(LENGTHS))
    assert by_name(found) == {
        "max_input_over_plain": 16.0,
        "max_input_over_chunked": 10.0,
        "hybrid_throughput": pytest.approx(2 / 3),  # of the rounds 2 / 3, 4 / 5 and 5 / 8
        "peak_as_profiled": pytest.approx(0.04),
    }
    assert [each.holds for each in found] == [True, True, False, True]


def test_a_peak_above_the_profile_counts_as_one_below() -> None:
    above = replace(LENGTHS, whole=28 * MIB)
    (figure,) = (each for each in figures(above) if each.name == "peak_as_profiled")
    assert figure.value == pytest.approx(0.12)
    assert figure.holds is False
