"""Values of a query's parameters, and shares of rows, as given on the command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from relquery.errors import ConfigError

GUARD_ROWS, PREVIEW_ROWS = 50, 10


def read_params(given: Sequence[str]) -> dict[str, Any] | None:
    """`n=5` is a number, `name=Ann` a text: what is valid JSON is read as JSON.

    Numbers with a fraction stay decimal, so they keep their digits. None if nothing is given.
    Raises ConfigError.
    """
    values: dict[str, Any] = {}
    for one in given:
        name, equals, text = one.partition("=")
        name = name.strip().removeprefix("$")
        if not equals or not name:
            raise ConfigError(f"--param {one}: expected NAME=VALUE, e.g. --param n=5.")
        if name in values:
            raise ConfigError(f"--param {name} is given twice. Give it once.")
        values[name] = _value(text)
    return values or None


def read_selectivity(given: Sequence[str], *, explains: bool) -> float | dict[str, float] | None:
    """`0.3` for all stages, `filter 1=0.3` for one; None if none is given. Raises ConfigError.

    explains: whether the query is only explained.
    """
    if given and not explains:
        raise ConfigError("--selectivity is for --explain. Add --explain, or leave it out.")
    by_stage: dict[str, float] = {}
    for one in given:
        name, equals, text = one.rpartition("=")
        name = name.strip()
        try:
            share = float(text)
        except ValueError:
            raise ConfigError(
                f"--selectivity {one}: expected a number from 0 to 1, or NAME=NUMBER, e.g. "
                "--selectivity 'filter 1=0.3'."
            ) from None
        if not equals and len(given) == 1:
            return share
        if not name or name in by_stage:
            raise ConfigError(
                f"--selectivity {one}: give one number for all stages, or one for each by its "
                "name, e.g. --selectivity 'filter 1=0.3'."
            )
        by_stage[name] = share
    return by_stage or None


def rows_for(option: str, given: int | None, default: int, *, is_on: bool) -> int:
    """How many rows an option takes. Raises ConfigError for a number without the option.

    is_on: whether the option itself is given.
    """
    if given is not None and not is_on:
        raise ConfigError(f"{option}-rows is for {option}. Add {option}, or leave it out.")
    return default if given is None else given


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_float=_number, parse_constant=_refused)
    except ValueError:
        return text


def _refused(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _number(text: str) -> Decimal | float:
    return float(text) if "e" in text.lower() else Decimal(text)
