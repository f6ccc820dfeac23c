"""How a provider caches and bills one of its models."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from math import inf
from types import MappingProxyType
from typing import Literal

Provider = Literal["openai", "anthropic", "google"]
HOUR = 3600.0
BATCH = 0.5
"""What a batch costs, as a share of the same requests sent live."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules for one model. Prices are in USD per million tokens.

    input, cached, write, write_hour, output: of tokens sent, read from the cache, written to it,
        written to it for an hour, and answered.
    minimum: tokens of the shortest prefix that is cached. step: hits of an automatic cache come in
        such steps above it. breakpoints: prefixes that a request may write; 0: the cache is
        automatic. lookback: blocks that are looked at from a breakpoint on, backwards, the
        breakpoint's own among them; 0 for the breakpoint alone. lookups: the last breakpoints that
        are looked at. lifetime: seconds after the last use. per_key: requests a minute with one
        prefix and key that stay on one machine.
    reasons: whether the model refuses what reasoning models refuse; see models.toml.
    """

    model: str
    provider: Provider
    source: str
    read_on: str
    input: float
    cached: float
    output: float
    minimum: int
    write: float = 0.0
    write_hour: float = 0.0
    step: int = 1
    breakpoints: int = 0
    lookback: int = 0
    lookups: int = 4
    lifetime: float = inf
    per_key: float = inf
    reasons: bool = False


def _load() -> Mapping[str, Rules]:
    text = files("benchmarks.standin").joinpath("models.toml").read_text("utf-8")
    return MappingProxyType({name: Rules(name, **of) for name, of in tomllib.loads(text).items()})


RULES = _load()
