"""How answers are drawn, from the keywords that a user gives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from relquery.errors import ConfigError, unknown
from relquery.prompt import Sampling


def read_sampling(settings: dict[str, Any]) -> Sampling:
    """Raises ConfigError for a setting that is not known or not valid."""
    known = [setting.name for setting in fields(Sampling) if setting.name != "scored"]
    for name in settings:
        if name not in known:
            raise ConfigError(unknown("setting", name, known, of="a query"))
    labels = settings.get("labels")
    if isinstance(labels, Iterable) and not isinstance(labels, str):
        settings = settings | {"labels": tuple(labels)}
        if not settings["labels"]:
            raise ConfigError(
                "labels is empty; pass at least one string, or None for unrestricted answers."
            )
    given = {name: value for name, value in settings.items() if value is not None}
    return Sampling(**given)
