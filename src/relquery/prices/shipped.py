"""Prices of the package genai-prices, with our rules of caches.

The package reads them from the providers' pages: by date, time of day, length of the prompt,
lifetime of what is cached, and service tier. It is imported when the first price is asked for.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from relquery.prices.files import parse
from relquery.prices.price import Price, Tier

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelInfo, ModelPrice, Provider

MAKERS = ("openai", "anthropic", "google", "deepseek", "mistral", "x-ai")
"""Providers of whose models a list of all prices consists."""
_CHECKED = "2026-11-30"
"""Day on which all prices were compared; see docs/cost.md."""
_FIELDS = {
    "uncached": "input_mtok",
    "write": "cache_write_mtok",
    "read": "cache_read_mtok",
    "output": "output_mtok",
    "write_1h": "cache_write_1h_mtok",
}
_BEFORE = r"(?:.*[./])?"
_AFTER = r"(?:[-@]20\d{6}|-20\d\d-\d\d-\d\d)?(?:-v\d+(?::\d+)?)?"
_DOUBTFUL = re.compile(r"deepseek-(chat|reasoner|v3.*)")
"""Models whose prices there contradict the provider's page, which no longer lists them."""
_OTHER = re.compile(
    r"embed|image|audio|realtime|transcribe|tts|live|search|whisper|moderation|banana|^ft:|\.ft-|:|oss"
)
"""Models that answer no prompt with text alone."""


def shipped_price(model: str, provider: str | None, moment: datetime) -> Price | None:
    """The price of a model at a moment. provider: genai-prices' id; None for the maker's own.

    None if it is not known.
    """
    try:
        seller, priced = _snapshot().find_provider_model(model, None, provider, None)
    except LookupError:
        return _lacking().get(model) if provider in (None, "openai") else None
    return None if _DOUBTFUL.fullmatch(priced.id) else _price(seller, priced, moment)


def provider_at(host: str) -> str | None:
    """genai-prices' id of the provider with this address; None if it is not known."""
    return next(
        (
            each.id
            for each in _snapshot().providers
            if re.match(each.api_pattern, f"https://{host}") and each.id != "openai-decisions"
        ),
        None,
    )


def shipped_names() -> Iterator[str]:
    """Current models of the makers that answer in text, by their own names."""
    for provider in _snapshot().providers:
        if provider.id in MAKERS:
            for model in provider.models:
                is_own = provider.id != "google" or not model.id.startswith("claude")
                if is_own and not model.deprecated and not _OTHER.search(model.id):
                    yield model.id
    yield from _lacking()


def _snapshot() -> DataSnapshot:
    from genai_prices.data_snapshot import get_snapshot

    return get_snapshot()


@cache
def _lacking() -> dict[str, Price]:
    return parse(_text("prices.toml"), "prices.toml")


@cache
def _rules() -> list[tuple[re.Pattern[str], str | None, dict[str, Any]]]:
    rules = tomllib.loads(_text("caches.toml"))["rule"]
    return [
        (re.compile(f"{_BEFORE}(?:{rule.pop('models')}){_AFTER}"), rule.pop("provider", None), rule)
        for rule in rules
    ]


def _text(name: str) -> str:
    return files("relquery.prices").joinpath(name).read_text(encoding="utf-8")


def _price(provider: Provider, model: ModelInfo, moment: datetime) -> Price | None:
    now = model.get_prices(moment)
    amounts = _amounts(now, 0)
    if amounts is None or not amounts["uncached"]:
        return None
    rule = _rule(provider.id, model.id)
    if amounts["write"] > amounts["uncached"]:
        rule = {"breakpoints": 4, **rule}
    starts = sorted({tier.start for price in _values(now) for tier in getattr(price, "tiers", ())})
    tiers = [Tier(start, **rates) for start in starts if (rates := _amounts(now, start + 1))]
    if not rule.get("breakpoints"):
        amounts = _free_to_write(amounts)
        tiers = [replace(tier, write=tier.uncached, write_1h=None) for tier in tiers]
    begun, ends = _dates(model, moment)
    price = Price(
        model.id,
        begun.isoformat() if begun else _CHECKED,
        (provider.pricing_urls or [""])[0],
        **amounts,
        **rule,
        until=ends.isoformat() if ends else None,
        tiers=tuple(tiers),
        peak=_peak(model, now),
    )
    return _with_shares(price, model, moment)


def _rule(provider: str, model: str) -> dict[str, Any]:
    name = model.replace(".", "-") if "claude" in model and "/" in model else model
    return next(
        fields
        for pattern, of, fields in _rules()
        if of in (None, provider) and pattern.fullmatch(name)
    )


def _values(price: ModelPrice) -> list[Any]:
    return [price.__dict__.get(name) for name in _FIELDS.values()]


def _amounts(price: ModelPrice, tokens: int) -> dict[str, Any] | None:
    """The amounts for a prompt of so many tokens, by field; None if it is not sold by tokens."""
    amounts: dict[str, Any] = {}
    for field, value in zip(_FIELDS, _values(price), strict=True):
        if value is None:
            continue
        tiers = [tier.price for tier in getattr(value, "tiers", ()) if tokens > tier.start]
        amounts[field] = float(tiers[-1] if tiers else getattr(value, "base", value))
    if not {"uncached", "output"} <= amounts.keys():
        return None
    uncached = amounts["uncached"]
    amounts["read"] = min(amounts.get("read", uncached), uncached)
    amounts["write"] = max(amounts.get("write", uncached), uncached)
    if "write_1h" in amounts:
        amounts["write_1h"] = max(amounts["write_1h"], amounts["write"])
    return amounts


def _free_to_write(amounts: dict[str, Any]) -> dict[str, Any]:
    return {**{k: v for k, v in amounts.items() if k != "write_1h"}, "write": amounts["uncached"]}


def _dates(model: ModelInfo, moment: datetime) -> tuple[date | None, date | None]:
    """The first and the last day of the price at a moment, as far as they are known."""
    listed = model.prices if isinstance(model.prices, list) else []
    starts = [getattr(each.constraint, "start_date", None) for each in listed]
    known = sorted(start for start in starts if start is not None)
    today = moment.astimezone(UTC).date()
    begun = [start for start in known if start <= today]
    coming = [start for start in known if start > today]
    return begun[-1] if begun else None, coming[0] - timedelta(1) if coming else None


def _peak(model: ModelInfo, now: ModelPrice) -> float:
    """By how many times the dearest hours of the day cost more than this moment."""
    listed = model.prices if isinstance(model.prices, list) else []
    of_hours = [each.prices for each in listed if hasattr(each.constraint, "start_time")]
    plain = _amounts(now, 0)
    dearest = [amounts for each in of_hours if (amounts := _amounts(each, 0)) is not None]
    if plain is None:
        return 1.0
    fields = [field for field in ("uncached", "output", "read") if plain[field]]
    factors = [float(each[field] / plain[field]) for each in dearest for field in fields]
    return max([1.0, *factors])


def _with_shares(price: Price, model: ModelInfo, moment: datetime) -> Price:
    """A price with what batches and the slow service tier cost, as parts of it."""
    shares: dict[str, Any] = {}
    for field, context in (("batch", {"processing": "batch"}), ("flex", {"service_tier": "flex"})):
        amounts = _amounts(model.get_prices(moment, context), 0)
        if amounts is None or amounts["uncached"] >= price.uncached:
            continue
        part = max(amounts["uncached"] / price.uncached, amounts["output"] / (price.output or 1))
        shares[field] = round(part, 6)
        if field == "batch" and abs(amounts["read"] - part * price.read) > 0.02 * price.read:
            shares["batch_read"] = min(amounts["read"], part * price.uncached)
    return replace(price, **shares)
