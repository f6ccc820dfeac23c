"""JSON Schemas as answers follow them: each key of an object is there, in order, and no other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from relquery.errors import ConfigError

_INSIDE = ("items", "additionalProperties", "contains", "not", "if", "then", "else")
_LISTS = ("anyOf", "oneOf", "prefixItems")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


def closed(schema: str) -> dict[str, Any]:
    """The schema, in which an object that names its `properties` has all of them and no others.

    Providers ask for this in what they call strict schemas. Parts of `allOf` stay open, because
    each of them would forbid the keys of the others. Raises ConfigError; see close_object.
    """
    return cast("dict[str, Any]", _close(json.loads(schema)))


def close_object(schema: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A schema that names `properties`, closed: those that are `required` too are among them.

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
    closing = {"required": list(properties), "additionalProperties": False}
    return found | {"properties": properties} | closing


def _close(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema  # true and false are schemas too
    found = close_object(schema, "The schema")
    for name in _INSIDE:
        if name in found:
            found[name] = _close(found[name])
    for name in _LISTS:
        if isinstance(found.get(name), list):
            found[name] = [_close(each) for each in found[name]]
    for name in _NAMED:
        if isinstance(found.get(name), dict):
            found[name] = {key: _close(each) for key, each in found[name].items()}
    return found
