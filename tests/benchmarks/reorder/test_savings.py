"""The closed form behind paper 000's Table 4."""

from __future__ import annotations

import pytest

from benchmarks.reorder.savings import savings
from relquery.errors import ConfigError
from relquery.prices.table import PRICES

OPENAI, ANTHROPIC = PRICES["gpt-4o-mini"], PRICES["claude-3-5-sonnet"]
TABLE_4 = {  # hit rates in percent: original, GGR; savings in percent: OpenAI, Anthropic
    "Movies": (34.6, 85.7, 31, 73),
    "Products": (26.7, 83.3, 33, 73),
    "BIRD": (10.4, 84.8, 39, 79),
    "PDMX": (11.8, 56.6, 24, 48),
    "Beer": (49.9, 80.1, 20, 55),
    "FEVER": (11.2, 67.4, 30, 60),
    "SQuAD": (11.0, 69.7, 31, 63),
}


def test_hit_rates_give_the_savings_that_the_paper_prints_too_high_for_anthropics_prices() -> None:
    twice = ANTHROPIC.uncached + ANTHROPIC.write
    for table, (before, after, openai, anthropic) in TABLE_4.items():
        rates = {"hit_rate": after / 100, "before": before / 100}
        assert round(100 * savings(price=OPENAI, **rates)) == openai, table
        assert round(100 * savings(price=ANTHROPIC, miss=twice, **rates)) == anthropic, table
        assert 1.5 < anthropic - 100 * savings(price=ANTHROPIC, **rates) < 4.5, table


def test_a_paid_cache_that_never_hits_costs_more_than_none() -> None:
    assert savings(0.0, ANTHROPIC) == pytest.approx(-0.25)
    assert savings(0.0, OPENAI) == 0
    assert savings(1.0, ANTHROPIC) == pytest.approx(0.9)
    assert savings(1 / 2, ANTHROPIC) == pytest.approx(1 - (1.25 + 0.1) / 2)  # two share all


def test_a_rate_that_is_no_share_is_refused() -> None:
    for rate, before in ((1.1, None), (-0.1, None), (0.5, 2.0)):
        with pytest.raises(ConfigError, match="between 0 and 1"):
            savings(rate, OPENAI, before=before)
