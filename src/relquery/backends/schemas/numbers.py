"""Bounds of numbers: exclusive ones become inclusive ones, which the grammar expresses exactly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from math import ceil, floor, inf, isfinite, lcm
from typing import Any

from relquery.errors import ConfigError

LARGEST = 2**53
"""The largest number: up to it, floating-point numbers represent all whole ones."""
DIGITS, PLACES = 15, 22
"""The most digits of a number, and of places after its point: others are read inexactly."""
NEAREST = 1e-12
"""How near to an exclusive bound of 0 an answer may come."""
_NAMES = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
_MOST_REMAINDERS = 10_000  # each is a state of the grammar, which counts in 32 bits


def bounds_of(schema: Mapping[str, Any], whole: bool, where: str) -> dict[str, Any]:
    """The keywords of a schema that bound a number, with inclusive bounds only.

    whole: whether the schema allows whole numbers only. Raises ConfigError if no number lies
    within the bounds, or if the grammar would round one of them.
    """
    given = {name: schema[name] for name in _NAMES if name in schema}
    for name, bound in given.items():
        _check_size(name, bound, where)
    lower, upper = (_whole if whole else _real)(given)
    if lower > upper:
        shown = ", ".join(f"{name} {bound}" for name, bound in given.items())
        raise ConfigError(f"{where} allows no number: {shown}. Widen the bounds.")
    found = {"minimum": lower} if lower > -inf else {}
    if upper < inf:
        found["maximum"] = upper
    if "multipleOf" in schema:
        found["multipleOf"] = schema["multipleOf"]
    return found


def _whole(given: Mapping[str, Any]) -> tuple[float, float]:
    lower = [ceil(given["minimum"])] if "minimum" in given else []
    upper = [floor(given["maximum"])] if "maximum" in given else []
    if "exclusiveMinimum" in given:
        lower.append(floor(given["exclusiveMinimum"]) + 1)
    if "exclusiveMaximum" in given:
        upper.append(ceil(given["exclusiveMaximum"]) - 1)
    return max(lower, default=-inf), min(upper, default=inf)


def _real(given: Mapping[str, Any]) -> tuple[float, float]:
    lower, upper = given.get("minimum", -inf), given.get("maximum", inf)
    if "exclusiveMinimum" in given:
        lower = max(lower, _beside(given["exclusiveMinimum"], inf))
    if "exclusiveMaximum" in given:
        upper = min(upper, _beside(given["exclusiveMaximum"], -inf))
    return lower, upper


def _beside(bound: float, towards: float) -> float:
    """The next number of so many digits; 0 has none near enough."""
    if bound == 0:
        return NEAREST if towards > 0 else -NEAREST
    given = Decimal(repr(bound))
    step = Decimal(1).scaleb(given.adjusted() - DIGITS + 1)
    return float(given + step if towards > 0 else given - step)


def _check_size(name: str, value: float, where: str) -> None:
    """Raises ConfigError for a number that the grammar's library would round."""
    given = Decimal(repr(value)).normalize()
    _, digits, exponent = given.as_tuple()
    if abs(value) > LARGEST or -int(exponent) > PLACES:
        raise ConfigError(
            f"{where} has {name} {value}; a number in a schema must be between -2**53 and 2**53, "
            f"with at most {PLACES} places. Give a nearer one, or a string with a pattern."
        )
    if len(digits) > DIGITS and value % 1:
        raise ConfigError(
            f"{where} has {name} {value}; a number in a schema has at most {DIGITS} digits. Round "
            "it."
        )


def check_constant(value: Any, where: str) -> None:
    """Raises ConfigError for numbers inside a constant that the grammar would round."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            check_constant(each, where)
    elif isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value):
        _check_size("a constant", value, where)


def check_multiples(given: Iterable[float]) -> None:
    """Raises ConfigError if multiples of these numbers, or of several of them at once, would be
    counted wrong."""
    values = list(given)
    steps = [Decimal(repr(value)) for value in values]
    for value, step in zip(values, steps, strict=True):
        if not step > 0 or _as_read(value) != step:
            raise ConfigError(
                f"multipleOf is {value}, whose multiples cannot be told exactly. Take a number "
                "above 0 with few digits, such as 0.01."
            )
    places = max((-int(step.as_tuple().exponent) for step in steps), default=0)
    counts = [int(step.scaleb(max(places, 0))) for step in steps]
    if counts and lcm(*counts) > _MOST_REMAINDERS:
        raise ConfigError(
            f"multipleOf is {', '.join(map(str, steps))}; their common multiples are too large. "
            "Take numbers with fewer digits."
        )


def _as_read(value: float) -> Decimal:
    """What the grammar's library reads: it shifts the point until no fraction is left."""
    shifted, places = float(value), 0
    while shifted % 1 and places < 20:
        shifted, places = shifted * 10, places + 1
    return Decimal(int(shifted)).scaleb(-places)
