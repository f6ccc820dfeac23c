"""Prices as data: what a price may say, and which one holds for a model as it is named."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from relquery.errors import ConfigError
from relquery.prices.price import Price
from relquery.prices.table import PRICES, find_price, known_price

OPENAI, ANTHROPIC = PRICES["gpt-4o-mini"], PRICES["claude-3.5-sonnet"]


def test_the_papers_prices_are_those_of_section_6_3() -> None:
    assert (OPENAI.uncached, OPENAI.read) == (0.15, 0.075)
    assert (ANTHROPIC.uncached, ANTHROPIC.write, ANTHROPIC.read) == (3.0, 3.75, 0.3)
    assert (OPENAI.minimum, ANTHROPIC.minimum) == (1024, 1024)


def test_every_price_has_a_date_and_a_public_source_and_every_provider_a_model() -> None:
    for name in PRICES:
        price = find_price(name)
        assert price.name == name
        assert price.date >= "2025-10"
        assert price.source.startswith("https://")
    for maker in ("gpt", "claude", "gemini", "deepseek"):
        assert any(name.startswith(maker) for name in PRICES)


def test_an_unknown_model_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'gpt-4o-mni'.*Did you mean 'gpt-4o-mini'\?"):
        find_price("gpt-4o-mni")


def with_field(price: Price, field: str, value: Any) -> Price:
    return dataclasses.replace(price, **{field: value})


def test_a_figure_that_contradicts_another_is_refused() -> None:
    for field, value in (
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
        ("write_1h", 1.0),  # as its cache is automatic
    ):
        with pytest.raises(ConfigError, match=f"{field} of price 'gpt-4o-mini' is {value!r}"):
            with_field(OPENAI, field, value)
    for field, value in (
        ("granularity", 128),  # breakpoints are exact and do not overflow
        ("requests_per_minute", 15),
        ("write_1h", 2.0),
        ("batch", 0.0),
        ("batch", 1.5),
        ("uncached", math.inf),
    ):
        with pytest.raises(ConfigError, match=field):
            with_field(ANTHROPIC, field, value)


def test_a_price_of_ones_own_needs_only_prices() -> None:
    price = Price("mine", "2026-11-20", "https://example.org", 1.0, 1.0, 0.5, 2.0)
    assert (price.minimum, price.granularity, price.breakpoints) == (0, 1, 0)


def test_entries_of_an_hour_cost_twice_the_input_price() -> None:
    price = PRICES["claude-sonnet-5"].for_an_hour
    assert (price.write, price.read, price.lifetime_s) == (4.0, 0.2, 3600)
    assert dataclasses.replace(ANTHROPIC, write_1h=None).for_an_hour.write == 6.0


def test_a_bill_adds_up_by_hand() -> None:
    usd = PRICES["claude-sonnet-5"].usd(uncached=1_000, written=2_000, read=10_000, output=500)
    assert usd == pytest.approx((1_000 * 2 + 2_000 * 2.5 + 10_000 * 0.2 + 500 * 10) / 1e6)


def test_a_way_to_a_model_and_its_snapshots_have_the_price_of_the_model() -> None:
    for model, name in {
        "gpt-5-mini": "gpt-5-mini",
        "gpt-5-mini-2025-08-07": "gpt-5-mini",
        "openai:gpt-5-mini-2025-08-07": "gpt-5-mini",
        "openai:gpt-5-mini@llm.example.org:8080/team": "gpt-5-mini",
        "openai:anthropic/claude-sonnet-5@openrouter.ai/api": "claude-sonnet-5",
        "anthropic:claude-haiku-4-5-20251001": "claude-haiku-4.5",
        "claude-haiku-4-5@20251001": "claude-haiku-4.5",
        "anthropic:claude-3-5-sonnet-latest": "claude-3.5-sonnet",
        "gemini:models/gemini-2.5-flash-preview-09-2025": "gemini-2.5-flash",
        "google/gemini-2.5-flash-001": "gemini-2.5-flash",
        " GPT-4o-Mini ": "gpt-4o-mini",
    }.items():
        assert known_price(model) is PRICES[name]
    others = ["", "demo", "gpt-5", "gpt-5-mini-audio", "ft:gpt-4o-mini:me", "my-gpt-5-mini"]
    for model in [*others, "openai:"]:
        assert known_price(model) is None
