"""All known prices, and which of them holds for a model as somebody names it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from types import MappingProxyType

from relquery.errors import ConfigError, did_you_mean, unknown
from relquery.prices.files import parse
from relquery.prices.own import own_prices
from relquery.prices.price import Price


def _shipped() -> Mapping[str, Price]:
    text = files("relquery.prices").joinpath("prices.toml").read_text(encoding="utf-8")
    return MappingProxyType(parse(text, "prices.toml"))


PRICES = _shipped()
"""Those that are shipped, by model."""

_MAKERS = re.compile(r"^(?:(?:openai|anthropic|google|gemini|deepseek|models)[:/])+")
_SNAPSHOTS = (
    r"-20\d\d-[01]\d-[0-3]\d",  # OpenAI
    r"-20\d\d[01]\d[0-3]\d",  # Anthropic
    r"-preview-[01]\d-(?:20\d\d|[0-3]\d)",  # Google
    r"-00\d",
    r"-latest",
    r"-preview",
)
_SNAPSHOT = re.compile(rf"(?P<name>.+?)(?:{'|'.join(_SNAPSHOTS)})")


def all_prices() -> dict[str, Price]:
    """All by model: the user's own go first. Raises ConfigError if their file is wrong."""
    return {**PRICES, **own_prices()}


def find_price(name: str) -> Price:
    """The price of this name. Raises ConfigError, with the nearest name, for others."""
    known = all_prices()
    if name not in known:
        raise ConfigError(
            unknown("price model", name, known)
            + " For your own price, run `relquery prices --update FILE`, or pass an rq.Price."
        )
    return known[name]


def known_price(model: str) -> Price | None:
    """The price of a model as it is named to `connect`, to a provider or in a report.

    `openai:gpt-5-mini-2025-08-07@host` is gpt-5-mini: neither the way to the model nor a dated
    snapshot changes its price. None if none is known.
    """
    known = {_plain(name): price for name, price in all_prices().items()}
    return next((known[name] for name in _names(model) if name in known), None)


def no_price(model: str) -> str:
    """What to say where a model's price is needed and not known. model: its name alone."""
    return (
        f"No price is known for '{model}'.{did_you_mean(model, all_prices(), 0.75)} Known prices: "
        f"{', '.join(all_prices())}. `relquery prices --update FILE` adds yours."
    )


def _names(model: str) -> Iterator[str]:
    """What a model may be called in a price list, the most exact name first."""
    name = _plain(model)
    yield name
    bare = _MAKERS.sub("", name.partition("@")[0])
    yield bare
    while found := _SNAPSHOT.fullmatch(bare):
        bare = found["name"]
        yield bare


def _plain(name: str) -> str:
    """Anthropic writes claude-haiku-4-5 where people write claude-haiku-4.5."""
    name = name.strip().lower()
    return name.replace(".", "-") if "claude" in name else name
