"""All known prices, and which of them holds for a model as somebody names it."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cache

from relquery.errors import ConfigError, did_you_mean, unknown
from relquery.prices.files import own_prices
from relquery.prices.price import Price
from relquery.prices.shipped import provider_at, shipped_names, shipped_price

_SELLERS = {
    "openai": "openai",
    "responses": "openai",
    "anthropic": "anthropic",
    "gemini": "google",
    "google": "google",
    "models": "google",
    "vertex": "google",
    "vertex_ai": "google",
    "bedrock": "aws",
    "azure": "azure",
    "deepseek": "deepseek",
    "mistral": "mistral",
    "xai": "x-ai",
    "x-ai": "x-ai",
    "groq": "groq",
    "together": "together",
    "together_ai": "together",
    "openrouter": "openrouter",
}
"""genai-prices' id of a provider, by what stands before a model's name."""
_HERE = ("ollama", "lmstudio", "llamacpp", "vllm")
"""Servers that bill nothing, whatever the names of their models."""
_MADE = re.compile(
    r"gpt-|chatgpt-|o\d|claude|gemini|deepseek|[a-z-]+stral|mixtral|grok"
    r"|(?:openai|anthropic|google|deepseek)/"
)
"""How names of makers' models begin. Others are not looked up, as that imports genai-prices."""
_OPEN = re.compile(r"gpt-oss|gemma")
"""Models that makers sell, and that anybody may serve."""
_BEFORE = re.compile(r"([\w-]+)[:/](.+)")
_BEDROCK = re.compile(r"(?:(?:us|eu|ap|apac|au|jp|in|ca|us-gov|global)\.)?[a-z]+\.[a-z][\w.:-]*")
_SNAPSHOTS = (
    r"[-@]20\d\d-?[01]\d-?[0-3]\d",  # OpenAI, Anthropic, Vertex
    r"-preview-[01]\d-(?:20\d\d|[0-3]\d)",  # Google
    r"[-@]00\d",
    r"-latest",
    r"-preview",
    r"@default",
)
_SNAPSHOT = re.compile(rf"(?P<name>.+?)(?:{'|'.join(_SNAPSHOTS)})")
_DATED = re.compile(r"@(?:20\d{6}|00\d|default)$")


class _Shipped(Mapping[str, Price]):
    """Prices that are shipped, by model: those of today. Made when they are asked for."""

    def __getitem__(self, name: str) -> Price:
        price = _at_hour(name, _hour(datetime.now(UTC)))
        if price is None:
            raise KeyError(name)
        return price

    def __iter__(self) -> Iterator[str]:
        return (name for name in shipped_names() if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


PRICES: Mapping[str, Price] = _Shipped()
"""Those that are shipped, by model; only current models of their makers are listed."""


def all_prices() -> dict[str, Price]:
    """All that are listed, by model: the user's own go first. Raises ConfigError if their file is
    wrong.
    """
    return {**PRICES, **own_prices()}


def find_price(name: str) -> Price:
    """The price of this name. Raises ConfigError, with the nearest name, for others."""
    if (price := known_price(name)) is None:
        raise ConfigError(
            unknown("price model", name, all_prices())
            + " For your own price, run `relquery prices --update FILE`, or pass an rq.Price."
        )
    return price


def known_price(model: str, moment: datetime | None = None) -> Price | None:
    """The price of a model as it is named to `connect`, to a provider or in a report.

    `openai:gpt-5-mini-2025-08-07@host` is gpt-5-mini: neither the way to the model nor a dated
    snapshot changes its price. None if none is known. A price that no longer holds is told of once.
    moment: None for now.
    """
    now = moment or datetime.now(UTC)
    own = {_plain(name): price for name, price in own_prices().items()}
    own_price = next((own[name] for name in _names(_parts(model)[1]) if name in own), None)
    price = own_price or _at_hour(model, _hour(now))
    if price is not None and price.until is not None and price.until < now.date().isoformat():
        _tell_past(price.name, price.until)
    return price


def is_sold(model: str) -> bool:
    """Whether calls of a model may cost something, which those of a local server do not."""
    return _parts(model)[0] not in _HERE


def no_price(model: str) -> str:
    """What to say where a model's price is needed and not known. model: its name alone."""
    return (
        f"No price is known for '{model}'.{did_you_mean(model, all_prices(), 0.75)} "
        "`relquery prices` lists those that are, and `relquery prices --update FILE` adds yours."
    )


@cache
def _tell_past(name: str, until: str) -> None:
    logging.getLogger("relquery").warning(
        "The price of '%s' held until %s, and is used all the same. `relquery prices --update "
        "FILE` stores a newer one.", name, until,
    )  # fmt: skip


def _hour(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


@cache
def _at_hour(model: str, hour: datetime) -> Price | None:
    """A shipped price. Prices change at full hours."""
    seller, name, host = _parts(model)
    is_bedrock = seller in (None, "aws") and bool(_BEDROCK.fullmatch(name))
    if seller in _HERE or not (is_bedrock or seller or _MADE.match(name)):
        return None
    provider = provider_at(host) if host else None
    if provider is not None or (host and seller == "openai"):
        seller = provider
    if is_bedrock or seller == "aws":
        price = _first(_bedrock_names(name), "aws", hour)
        if price is not None:
            return price
    if seller is not None:
        price = _first(_names(name), seller, hour)
        if price is not None or seller not in ("google", "openrouter", "azure", "aws"):
            return price
    if host and _OPEN.search(name):
        return None
    return _first(_names(name), None, hour)


def _first(names: Iterator[str], seller: str | None, hour: datetime) -> Price | None:
    return next((price for name in names if (price := shipped_price(name, seller, hour))), None)


def _parts(model: str) -> tuple[str | None, str, str]:
    """What sells a model, its name there, and the server's address where it is another."""
    name, host = _plain(model), ""
    if "@" in name and not _DATED.match(name, name.rindex("@")):
        name, _, host = name.partition("@")
    match = _BEFORE.fullmatch(name)
    if match and ":" in name[: match.end(1) + 1] and match[1] in (*_SELLERS, *_HERE):
        return _SELLERS.get(match[1], match[1]), match[2], host
    return None, name, host


def _names(name: str) -> Iterator[str]:
    """What a model may be called in a price list, the most exact name first."""
    yield name
    if (cut := _SNAPSHOT.fullmatch(name)) is not None:
        yield from _names(cut["name"])
    elif (match := _BEFORE.fullmatch(name)) is not None and match[1] in _SELLERS:
        yield from _names(match[2])


def _bedrock_names(name: str) -> Iterator[str]:
    """Names of Bedrock: with the region's profile, a version, both or neither."""
    yield name
    yield re.sub(r"(-20\d{6})?(-v\d+(:\d+)?)?$", "", name)


def _plain(name: str) -> str:
    """Anthropic writes claude-haiku-4-5 where people write claude-haiku-4.5."""
    name = name.strip().lower()
    host = name.find("@")
    head, tail = (name, "") if host < 0 else (name[:host], name[host:])
    if "claude" not in head:
        return name
    before, _, version = head.rpartition("claude")
    return f"{before}claude{version.replace('.', '-')}{tail}"
