"""The keywords of a JSON Schema that answers follow, and their values as the grammar reads them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from math import ceil, floor, inf, isfinite, lcm
from typing import Any

from relquery.errors import ConfigError, did_you_mean

_YEAR = "([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
_LEAP_YEAR = "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
_DATE = (
    f"({_YEAR}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    f"|02-(0[1-9]|1[0-9]|2[0-8]))|{_LEAP_YEAR}-02-29)"
)
_TIME = (
    r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)

DATES = {"date": f"^{_DATE}$", "time": f"^{_TIME}$", "date-time": f"^{_DATE}T{_TIME}$"}
"""Patterns of dates that exist, in years 0001 to 9999, without leap seconds."""
FORMATS = (*DATES, "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid")
"""The formats that answers follow."""


TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
MOST_ITEMS, MOST_CHARACTERS, MOST_KEYS, MOST_OPTIONS = 1_000, 1_000_000, 1_000, 100

ANNOTATIONS = {
    "$comment", "$defs", "$schema", "contentEncoding", "contentMediaType", "default", "definitions",
    "deprecated", "description", "discriminator", "examples", "readOnly", "title", "writeOnly",
}  # fmt: skip
"""What says nothing about a value by itself."""

Form = tuple[str, Callable[[Any], bool]]


def _is_count(most: int) -> Form:
    return (
        f"a whole number from 0 to {most:,}",
        lambda value: isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most,
    )


def _is_schema(value: Any) -> bool:
    return isinstance(value, dict | bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _is_type(value: Any) -> bool:
    return value in TYPES if isinstance(value, str) else _is_list(value, TYPES.__contains__)


def _is_list(value: Any, is_part: Callable[[Any], bool], least: int = 1) -> bool:
    return isinstance(value, list) and len(value) >= least and all(map(is_part, value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_SCHEMA: Form = "a schema", _is_schema
_SCHEMAS: Form = (
    f"a list of 1 to {MOST_OPTIONS} schemas",
    lambda value: _is_list(value, _is_schema) and len(value) <= MOST_OPTIONS,
)
_NUMBER: Form = "a number", _is_number
_LENGTH, _COUNT = _is_count(MOST_CHARACTERS), _is_count(MOST_ITEMS)
_NAMED: Form = (
    f"an object of at most {MOST_KEYS:,} schemas",
    lambda value: (
        isinstance(value, dict) and len(value) <= MOST_KEYS and all(map(_is_schema, value.values()))
    ),
)

FORMS: Mapping[str, Form] = {
    "type": (f"one or more of {', '.join(TYPES)}", _is_type),
    "enum": ("a list of at least 1 value", lambda value: _is_list(value, lambda _: True)),
    "const": ("a value", lambda _: True),
    "$ref": (
        "a reference inside the schema, such as '#/$defs/name'",
        lambda value: isinstance(value, str) and (value == "#" or value.startswith("#/")),
    ),
    "allOf": _SCHEMAS,
    "anyOf": _SCHEMAS,
    "oneOf": _SCHEMAS,
    "properties": _NAMED,
    "required": ("a list of names", lambda value: _is_list(value, _is_text, 0)),
    "additionalProperties": _SCHEMA,
    "patternProperties": (
        "an object with one pattern: a key could match two",
        lambda value: _NAMED[1](value) and len(value) <= 1,
    ),
    "minProperties": _is_count(MOST_KEYS),
    "maxProperties": _is_count(MOST_KEYS),
    "items": _SCHEMA,
    "prefixItems": _SCHEMAS,
    "minItems": _COUNT,
    "maxItems": _COUNT,
    "uniqueItems": ("false", lambda value: value is False),
    "minLength": _LENGTH,
    "maxLength": _LENGTH,
    "pattern": ("a text", _is_text),
    "format": (f"one of {', '.join(sorted(FORMATS))}", FORMATS.__contains__),
    "minimum": _NUMBER,
    "maximum": _NUMBER,
    "exclusiveMinimum": _NUMBER,
    "exclusiveMaximum": _NUMBER,
    "multipleOf": _NUMBER,
}
"""What each keyword's value must be."""


def check_keywords(schema: Mapping[str, Any], where: str) -> None:
    """Raises ConfigError that names a keyword which answers do not follow, or whose value is of
    another form."""
    for name in sorted(schema):
        if name in ANNOTATIONS:
            continue
        if name not in FORMS:
            raise ConfigError(
                f"{where} has {shown(name)}, which is not supported in a schema. Remove it, and "
                f"check the answers afterwards.{did_you_mean(name[:40], FORMS)}"
            )
        form, is_met = FORMS[name]
        if not is_met(schema[name]):
            raise ConfigError(f"{where} has {name} {shown(schema[name])}; it must be {form}.")


def shown(value: Any) -> str:
    """A value in a message."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


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


_CLASS = re.compile(
    r"\[\^?(?:\\[dwsnrtfv]|\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\[^\w\s]|[^\\\[\]&~-]|&(?!&)|~(?!~)"
    r"|-(?!-))*\]"
)
_TOKEN = re.compile(
    r"\\[dwsDWSnrtfv]|\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\[^\w\s]"  # escapes
    r"|\(\?:|\((?!\?)|[)|^$.]"
    r"|[^\\()\[\]{}|^$.*+?]",
)
_REPETITION = re.compile(r"(?:[*+?]|\{[0-9]{1,6}(?:,[0-9]{0,6})?\})\??")
_ESCAPE = re.compile(r"\\.")
_BEFORE_ATOMS = ("(", "(?:", "|", "^", "$")
_LONGEST = 4_096


_SPACES = r" \t\n\r\f\v"
_MORE_SPACES = r"\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_MEANT = {
    r"\d": "0-9",
    r"\w": "A-Za-z0-9_",
    r"\s": _SPACES,
}
_MEANT_ALONE = {
    ".": r"[^\n\r\u2028\u2029]",
    r"\D": "[^0-9]",
    r"\W": "[^A-Za-z0-9_]",
    r"\S": f"[^{_SPACES}{_MORE_SPACES}\\x85]",
} | {short: f"[{inside}]" for short, inside in _MEANT.items()}


def pattern_of(pattern: str, where: str) -> str:
    """The pattern with its short forms written out, as ECMA-262 understands them.

    Raises ConfigError for a pattern with something else than text, classes, groups, alternatives,
    repetitions, and `^` and `$` at the ends.
    """
    if len(pattern) > _LONGEST:
        raise ConfigError(
            f"{where} has a pattern of {len(pattern):,} characters; the most is {_LONGEST:,}."
        )
    at, found = 0, list[str]()
    while at < len(pattern):
        in_class = _CLASS.match(pattern, at)
        token = in_class or _TOKEN.match(pattern, at)
        text = token[0] if token else pattern[at : at + 2]
        is_amiss = (text == "^" and at > 0) or (text == "$" and at + 1 < len(pattern))
        if token is None or is_amiss:
            raise ConfigError(
                f"{where} has the pattern {pattern[:80]!r}, in which {text!r} is not supported. "
                "Use text, classes such as [a-z], groups, alternatives and repetitions, with ^ "
                "and $ at the ends."
            )
        found.append(_written_out(text) if in_class else _MEANT_ALONE.get(text, text))
        at = token.end()
        repetition = _REPETITION.match(pattern, at) if text not in _BEFORE_ATOMS else None
        if repetition:
            found.append(repetition[0])
            at = repetition.end()
    return "".join(found)


def _written_out(given: str) -> str:
    """A class in which no other class has a short form."""
    return _ESCAPE.sub(lambda found: _MEANT.get(found[0], found[0]), given)
