"""JSON Schemas as answers follow them: each key of an object is there, in order, and no other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from relquery.errors import ConfigError

SINGLE = ("items", "additionalProperties", "contains", "not", "if", "then", "else")
LISTS = ("anyOf", "allOf", "oneOf", "prefixItems")
NAMED = ("properties", "patternProperties", "dependentSchemas")
DEFINED = ("$defs", "definitions")
"""Keywords with a schema inside, with a list of them, and with some by name."""

Schema = Mapping[str, Any]


def inside(schema: Any) -> Iterator[Any]:
    """The schemas inside a schema, one level deeper; its definitions are not."""
    if isinstance(schema, dict):
        yield from (each for name in LISTS for each in schema.get(name, ()))
        yield from (schema[name] for name in SINGLE if name in schema)
        yield from (each for name in NAMED for each in schema.get(name, {}).values())


def rebuilt(schema: Schema, change: Callable[[Any, str], Any]) -> dict[str, Any]:
    """A schema with those inside changed, its definitions too. change: gets one, and its place:
    the keyword, and its number or name there."""
    found = dict(schema)
    for name, value in schema.items():
        if name in SINGLE:
            found[name] = change(value, name)
        elif name in LISTS and isinstance(value, list):
            found[name] = [change(each, f"{name}/{at}") for at, each in enumerate(value)]
        elif name in (*NAMED, *DEFINED) and isinstance(value, dict):
            found[name] = {key: change(each, f"{name}/{key}") for key, each in value.items()}
    return found


def closed(schema: str) -> dict[str, Any]:
    """The schema, in which an object that names its `properties` has all of them and no others.

    Providers ask for this in what they call strict schemas. Parts of `allOf` stay open, because
    each of them would forbid the keys of the others. Raises ConfigError; see close_object.
    """
    return cast("dict[str, Any]", _close(json.loads(schema), ""))


def _close(schema: Any, where: str) -> Any:
    # true and false are schemas too
    if not isinstance(schema, dict) or where.startswith("allOf/"):
        return schema
    return rebuilt(close_object(schema, "The schema"), _close)


def close_object(schema: Schema, where: str, all_keys: bool = True) -> dict[str, Any]:
    """A schema that names `properties`, closed: those that are `required` too are among them.

    all_keys: whether values have all of them, or those that are `required` at least.

    Raises ConfigError for a required name that no key may have.
    """
    found = dict(schema)
    if not isinstance(found.get("properties"), dict):
        return found
    properties, others = dict(found["properties"]), found.get("additionalProperties", True)
    given = found.get("required")
    for name in given if isinstance(given, list) else ():
        if name not in properties:
            if others is False or (others is not True and "patternProperties" in found):
                raise ConfigError(
                    f"{where} requires the key {name!r}, which is not among its properties and "
                    "which additionalProperties forbids. Add it to the properties."
                )
            properties[name] = others
    required = properties if all_keys else [name for name in properties if name in (given or ())]
    closing = {"required": list(required), "additionalProperties": False}
    return found | {"properties": properties} | closing
