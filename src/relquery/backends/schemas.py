"""JSON Schemas as answers follow them: each key of an object is there, in order, and no other."""

from __future__ import annotations

import json
from typing import Any, cast

_INSIDE = ("items", "additionalProperties", "contains", "not", "if", "then", "else")
_LISTS = ("anyOf", "oneOf", "prefixItems")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


def closed(schema: str) -> dict[str, Any]:
    """The schema, in which an object that names its `properties` has all of them and no others.

    Providers ask for this in what they call strict schemas. Parts of `allOf` stay open, because
    each of them would forbid the keys of the others.
    """
    return cast("dict[str, Any]", _close(json.loads(schema)))


def _close(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema  # true and false are schemas too
    found = dict(schema)
    for name in _INSIDE:
        if name in found:
            found[name] = _close(found[name])
    for name in _LISTS:
        if isinstance(found.get(name), list):
            found[name] = [_close(each) for each in found[name]]
    for name in _NAMED:
        if isinstance(found.get(name), dict):
            found[name] = {key: _close(each) for key, each in found[name].items()}
    if isinstance(found.get("properties"), dict):
        found |= {"required": list(found["properties"]), "additionalProperties": False}
    return found
