"""Prices as data: what a price may say, and which one holds for a model as it is named."""

from __future__ import annotations

import dataclasses
import math

import pytest

from relquery.errors import ConfigError
from relquery.prices.price import Price
from relquery.prices.table import PRICES, find_price, known_price

OPENAI, ANTHROPIC = PRICES["gpt-4o-mini"], PRICES["claude-3.5-sonnet"]


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


@pytest.mark.parametrize(
    ("field", "value"),
    [("write_1h", 2.0), ("batch", 0.0), ("batch", 1.5), ("uncached", math.inf)],
)
def test_figures_of_hours_and_batches_are_checked_too(field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=field):
        dataclasses.replace(ANTHROPIC, **{field: value})


def test_an_automatic_cache_has_no_price_for_writes_of_an_hour() -> None:
    with pytest.raises(ConfigError, match="write_1h of price 'gpt-4o-mini'"):
        dataclasses.replace(OPENAI, write_1h=1.0)


def test_entries_of_an_hour_cost_twice_the_input_price() -> None:
    price = PRICES["claude-sonnet-5"].for_an_hour
    assert (price.write, price.read, price.lifetime_s) == (4.0, 0.2, 3600)
    assert dataclasses.replace(ANTHROPIC, write_1h=None).for_an_hour.write == 6.0


def test_a_bill_adds_up_by_hand() -> None:
    usd = PRICES["claude-sonnet-5"].usd(uncached=1_000, written=2_000, read=10_000, output=500)
    assert usd == pytest.approx((1_000 * 2 + 2_000 * 2.5 + 10_000 * 0.2 + 500 * 10) / 1e6)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("gpt-5-mini", "gpt-5-mini"),
        ("gpt-5-mini-2025-08-07", "gpt-5-mini"),
        ("openai:gpt-5-mini-2025-08-07", "gpt-5-mini"),
        ("openai:gpt-5-mini@llm.example.org:8080/team", "gpt-5-mini"),
        ("openai:anthropic/claude-sonnet-5@openrouter.ai/api", "claude-sonnet-5"),
        ("anthropic:claude-haiku-4-5-20251001", "claude-haiku-4.5"),
        ("claude-haiku-4-5@20251001", "claude-haiku-4.5"),
        ("anthropic:claude-3-5-sonnet-latest", "claude-3.5-sonnet"),
        ("gemini:models/gemini-2.5-flash-preview-09-2025", "gemini-2.5-flash"),
        ("google/gemini-2.5-flash-001", "gemini-2.5-flash"),
        (" GPT-4o-Mini ", "gpt-4o-mini"),
    ],
)
def test_a_way_to_a_model_and_its_snapshots_have_the_price_of_the_model(
    model: str, name: str
) -> None:
    assert known_price(model) is PRICES[name]


@pytest.mark.parametrize(
    "model",
    ["", "demo", "gpt-5", "gpt-5-mini-audio", "ft:gpt-4o-mini:me", "my-gpt-5-mini", "openai:"],
)
def test_another_model_has_no_price(model: str) -> None:
    assert known_price(model) is None
