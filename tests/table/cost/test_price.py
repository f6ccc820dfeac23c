"""Price models as data, and the closed form behind paper 000's Table 4."""

from __future__ import annotations

import dataclasses

import pytest

from relquery.errors import ConfigError
from relquery.table.cost.price import PRICES, Price, find_price, savings

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


def test_the_papers_prices_are_those_of_section_6_3() -> None:
    assert (OPENAI.uncached, OPENAI.read) == (0.15, 0.075)
    assert (ANTHROPIC.uncached, ANTHROPIC.write, ANTHROPIC.read) == (3.0, 3.75, 0.3)
    assert (OPENAI.minimum, ANTHROPIC.minimum) == (1024, 1024)


@pytest.mark.parametrize("name", PRICES)
def test_every_price_has_a_date_and_a_public_source(name: str) -> None:
    price = find_price(name)
    assert price.name == name
    assert price.date >= "2025-10"
    assert price.source.startswith("https://")


@pytest.mark.parametrize("maker", ["gpt", "claude", "gemini", "deepseek"])
def test_every_provider_has_a_model(maker: str) -> None:
    assert any(name.startswith(maker) for name in PRICES)


def test_an_unknown_model_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'gpt-4o-mni'.*Did you mean 'gpt-4o-mini'\?"):
        find_price("gpt-4o-mni")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("date", "November"),
        ("uncached", 0.0),
        ("read", 0.2),
        ("write", 0.2),
        ("output", -1.0),
        ("minimum", -1),
        ("granularity", 0),
        ("breakpoints", -1),
        ("requests_per_minute", 0.0),
        ("lifetime_s", 0.0),
    ],
)
def test_a_figure_that_contradicts_another_is_refused(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{field} of price 'gpt-4o-mini' is {value!r}"):
        dataclasses.replace(OPENAI, **{field: value})


@pytest.mark.parametrize(("field", "value"), [("granularity", 128), ("requests_per_minute", 15)])
def test_breakpoints_are_exact_and_do_not_overflow(field: str, value: int) -> None:
    with pytest.raises(ConfigError, match=field):
        dataclasses.replace(ANTHROPIC, **{field: value})


def test_a_price_of_ones_own_needs_only_prices() -> None:
    price = Price("mine", "2026-11-20", "https://example.org", 1.0, 1.0, 0.5, 2.0)
    assert (price.minimum, price.granularity, price.breakpoints) == (0, 1, 0)
