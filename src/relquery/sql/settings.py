"""Settings of answers, from the keywords that a user gives."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

from relquery.config import OF_CONNECT
from relquery.errors import ConfigError, unknown
from relquery.prompt import Sampling

_NOT_FOR_QUERIES = {"scored", "logprobs", "prompt_logprobs", "adjustments", "told"}
SETTINGS = [each.name for each in fields(Sampling) if each.name not in _NOT_FOR_QUERIES]


def keywords_of(function: Callable[..., object]) -> list[str]:
    """The parameters of a function that have names only."""
    given = inspect.signature(function).parameters.values()
    return [parameter.name for parameter in given if parameter.kind is parameter.KEYWORD_ONLY]


def read_sampling(
    settings: dict[str, Any], function: Callable[..., object] | None = None
) -> Sampling:
    """Raises ConfigError for a setting that is not known or not valid.

    function: what was given them; the user could have meant another keyword of it.
    """
    for name in settings:
        if name in (*OF_CONNECT, "budget", "base_url", "api_key"):
            own = " A call may have its own: model := 'NAME'." * (name == "model")
            raise ConfigError(f"{name} is a setting of rq.connect(...), not of a query.{own}")
        if name not in SETTINGS:
            others = [] if function is None else keywords_of(function)
            raise ConfigError(unknown("setting", name, [*SETTINGS, *others], of="a query"))
    labels = settings.get("labels")
    if isinstance(labels, Iterable) and not isinstance(labels, str):
        settings = settings | {"labels": tuple(labels)}
        if not settings["labels"]:
            raise ConfigError(
                "labels is empty; pass at least one string, or None for unrestricted answers."
            )
    given = {name: value for name, value in settings.items() if value is not None}
    return Sampling(**given)
