"""The closed form behind paper 000's Table 4."""

from __future__ import annotations

import pytest

from relquery.errors import ConfigError
from relquery.prices.table import PRICES
from relquery.table.cost.savings import savings

OPENAI, ANTHROPIC = PRICES["gpt-4o-mini"], PRICES["claude-3.5-sonnet"]
TABLE_4 = {  # hit rates in percent: original, GGR; savings in percent: OpenAI, Anthropic
    "Movies": (34.6, 85.7, 31, 73),
    "Products": (26.7, 83.3, 33, 73),
    "BIRD": (10.4, 84.8, 39, 79),
    "PDMX": (11.8, 56.6, 24, 48),
    "Beer": (49.9, 80.1, 20, 55),
    "FEVER": (11.2, 67.4, 30, 60),
    "SQuAD": (11.0, 69.7, 31, 63),
}


@pytest.mark.parametrize("table", TABLE_4)
def test_hit_rates_give_the_savings_that_the_paper_prints(table: str) -> None:
    before, after, openai, anthropic = TABLE_4[table]
    rates = {"hit_rate": after / 100, "before": before / 100}
    twice = ANTHROPIC.uncached + ANTHROPIC.write
    assert round(100 * savings(price=OPENAI, **rates)) == openai
    assert round(100 * savings(price=ANTHROPIC, miss=twice, **rates)) == anthropic


@pytest.mark.parametrize("table", TABLE_4)
def test_the_papers_anthropic_savings_are_too_high_for_its_prices(table: str) -> None:
    before, after, _, printed = TABLE_4[table]
    real = 100 * savings(after / 100, ANTHROPIC, before=before / 100)
    assert 1.5 < printed - real < 4.5


def test_a_paid_cache_that_never_hits_costs_more_than_none() -> None:
    assert savings(0.0, ANTHROPIC) == pytest.approx(-0.25)
    assert savings(0.0, OPENAI) == 0
    assert savings(1.0, ANTHROPIC) == pytest.approx(0.9)


def test_two_requests_that_share_all_pay_for_a_write() -> None:
    assert savings(1 / 2, ANTHROPIC) == pytest.approx(1 - (1.25 + 0.1) / 2)


@pytest.mark.parametrize("rates", [(1.1, None), (-0.1, None), (0.5, 2.0)])
def test_a_rate_that_is_no_share_is_refused(rates: tuple[float, float | None]) -> None:
    with pytest.raises(ConfigError, match="between 0 and 1"):
        savings(rates[0], OPENAI, before=rates[1])
