"""What models of a provider are known to take."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

Api = Literal["chat", "responses", "messages"]


@dataclass(frozen=True, slots=True)
class Facts:
    """The fields of facts.toml. cache_minimum: None where it is not known."""

    provider: str
    models: str
    api: Api
    without: frozenset[str]
    reasons: bool
    as_of: str
    source: str
    cache_minimum: int | None = None


def facts_of(provider: str, model: str) -> Facts | None:
    """What is known of a model before the first request; None if nothing."""
    for each in _known():
        if each.provider == provider and re.fullmatch(each.models, model):
            return each
    return None


@cache
def _known() -> Sequence[Facts]:
    text = files(__package__).joinpath("facts.toml").read_text(encoding="utf-8")
    entries = tomllib.loads(text)["model"]
    return tuple(Facts(**{**entry, "without": frozenset(entry["without"])}) for entry in entries)
