"""The keywords of a JSON Schema that answers follow, and the form of their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

from relquery.backends.schemas.formats import FORMATS
from relquery.errors import ConfigError, did_you_mean

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
