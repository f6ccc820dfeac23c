"""Random JSON Schemas of all keywords, and an oracle that says what is valid under them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Context, Decimal
from functools import partial
from random import Random
from typing import Any

import jsonschema
from jsonschema.exceptions import ValidationError

WORDS = (
    "a",
    "b",
    "",
    "ab",
    "é",
    'q"',
    "日本",
    "\n",
    "null",
    "1",
    "\U0001f600",
    "\x00",
    "\x7f",
    "/",
)
NUMBERS = (0, 1, -1, 2, 5, 10, 0.5, -0.5, 1.5, 100, 0.1, -3.25, 1e-3, 12345.678, 2**53, -(2**53))
STEPS = (1, 2, 3, 0.5, 0.1, 0.25, 7, 0.01, 10, 1.5, 100)
PATTERNS = (
    "^a+$", "b", "^[a-z]{2,4}$", r"^\d{3}-\d{2}$", r"\S", r"^\w*$", "^(a|b)*c?$", "a$", "^x", "^$",
    r"^[^a-z]{1,3}$", ".", r"^a\.b$", r"^\s?x$", "^(?:ab){1,3}$", "^a|b$", "^[A-Z][a-z]*( [A-Z])?$",
    r"^[\w.-]+@[a-z]+$", r"^\u0041[\x42]$", r"^[^\d\s]+$", r"^\W\D$",
)  # fmt: skip
FORMATS = (
    "date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid",
)  # fmt: skip
KEYS = ("a", "b", "c", "ab", "x1", "größe", 'k"q', "", "\U0001f600")
TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
REFUSED = (
    "not", "if", "contains", "propertyNames", "dependentRequired", "uniqueItems",
    "unevaluatedProperties", "dependentSchemas", "additionalItems",
)  # fmt: skip


def any_schema(rng: Random, rare: float = 0.02) -> dict[str, Any]:
    """A schema of any keywords. rare: how often it has one that is always refused."""
    names = [f"d{at}" for at in range(rng.randint(0, 2))]
    found = _part(rng, 3, names, rare)
    if names:
        found["$defs"] = {name: _part(rng, 2, names, rare) for name in names}
    return found


def _part(rng: Random, depth: int, names: list[str], rare: float) -> dict[str, Any]:
    inside = partial(_sub, rng, depth - 1, names, rare)
    found: dict[str, Any] = {}
    if names and rng.random() < 0.12:
        found["$ref"] = f"#/$defs/{rng.choice(names)}"
    if rng.random() < 0.85 and "$ref" not in found:
        kinds = TYPES if depth else TYPES[:5]
        kind: Any = rng.choice(kinds)
        found["type"] = kind if rng.random() < 0.8 else rng.sample(kinds, rng.randint(1, 3))
    kinds = found.get("type", TYPES)
    for name in ("integer", "number", "string", "array", "object")[: 5 if depth else 3]:
        if name in kinds and rng.random() < 0.8:
            found |= _about(rng, name, inside)
    if rng.random() < 0.1:
        found["enum"] = [_value(rng) for _ in range(rng.randint(1, 4))]
    if rng.random() < 0.05:
        found["const"] = _value(rng)
    for name, chance in (("anyOf", 0.1), ("allOf", 0.07), ("oneOf", 0.07)):
        if depth and rng.random() < chance:
            found[name] = [inside() for _ in range(rng.randint(1, 3))]
    if depth and rng.random() < 0.03:
        found["oneOf"] = [
            {
                "type": "object",
                "properties": {"kind": {"const": each}, rng.choice(KEYS): inside()},
                **({"required": ["kind"]} if rng.random() < 0.7 else {}),
            }
            for each in "abc"
        ]
    if rng.random() < rare:
        found[rng.choice(REFUSED)] = rng.choice([True, {}, ["a"], {"a": ["b"]}])
    return found


def _sub(rng: Random, depth: int, names: list[str], rare: float) -> Any:
    if rng.random() < 0.05:
        return rng.random() < 0.7
    return _part(rng, max(depth, 0), names, rare)


def _about(rng: Random, kind: str, inside: Any) -> dict[str, Any]:
    some: dict[str, Any] = {}
    match kind:
        case "integer" | "number":
            bounds = sorted(rng.choice(NUMBERS) for _ in range(2))
            some = {
                rng.choice(["minimum", "exclusiveMinimum"]): bounds[0],
                rng.choice(["maximum", "exclusiveMaximum"]): bounds[1],
                "multipleOf": rng.choice(STEPS),
            }
        case "string":
            least = rng.randint(0, 3)
            some = {
                "minLength": least,
                "maxLength": least + rng.randint(0, 6),
                "pattern": rng.choice(PATTERNS),
                "format": rng.choice(FORMATS),
            }
        case "array":
            least = rng.randint(0, 2)
            some = {
                "items": inside(),
                "minItems": least,
                "maxItems": least + rng.randint(0, 2),
                "prefixItems": [inside() for _ in range(rng.randint(1, 2))],
            }
        case "object":
            least = rng.randint(0, 2)
            some = {
                "properties": {key: inside() for key in rng.sample(KEYS, rng.randint(0, 3))},
                "required": rng.sample(KEYS, rng.randint(0, 2)),
                "additionalProperties": rng.choice([False, True, inside()]),
                "minProperties": least,
                "maxProperties": least + rng.randint(0, 3),
                "patternProperties": {rng.choice(PATTERNS): inside()},
            }
    chances = {"multipleOf": 0.2, "format": 0.3, "pattern": 0.35, "prefixItems": 0.3}
    chances |= {"minProperties": 0.15, "maxProperties": 0.15, "patternProperties": 0.15}
    return {name: some[name] for name in some if rng.random() < chances.get(name, 0.5)}


def _value(rng: Random) -> Any:
    kind = rng.random()
    if kind < 0.1:
        return rng.choice([[], {}, [1, "a"], {"a": None, "b": [True]}])
    return rng.choice([*WORDS, *NUMBERS[:12], True, False, None])


def problem_of(text: str, schema: str) -> str | None:
    """Why JSON is not valid under a schema, numbers by their exact value; None if it is."""
    loads = partial(json.loads, parse_float=_exact)
    try:
        _VALIDATOR(loads(schema), format_checker=_FORMATS).validate(loads(text))
    except ValidationError as error:
        return str(error.message)
    return None


def _exact(text: str) -> Decimal:
    """A number as written; an exponent beyond 100 as 100, or the like below 0."""
    digits, _, exponent = text.lower().partition("e")
    return Decimal(digits).scaleb(max(-100, min(100, int(exponent or 0))), context=_EXACT)


def _is_integer(_: Any, value: Any) -> bool:
    if isinstance(value, Decimal):
        return value == value.to_integral_value(context=_EXACT)
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(_: Any, value: Any) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def _multiple(_: Any, step: Any, value: Any, __: Any) -> Iterator[ValidationError]:
    if _is_number(_, value) and _EXACT.remainder(Decimal(value), Decimal(step)) != 0:
        yield ValidationError(f"{value} is not a multiple of {step}")


def _pattern(_: Any, pattern: str, value: Any, __: Any) -> Iterator[ValidationError]:
    if isinstance(value, str) and not re.search(_as_python(pattern), value, re.ASCII):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _as_python(pattern: str) -> str:
    return pattern[:-1] + r"\Z" if pattern.endswith("$") else pattern


_EXACT = Context(prec=3_000, Emax=10**6, Emin=-(10**6))
_FORMATS = jsonschema.Draft202012Validator.FORMAT_CHECKER
_VALIDATOR = jsonschema.validators.extend(
    jsonschema.Draft202012Validator,
    {"multipleOf": _multiple, "pattern": _pattern},
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine_many(
        {"integer": _is_integer, "number": _is_number}
    ),
)
