"""A schema is closed: objects have all keys that it names, in their order, and no others."""

from __future__ import annotations

import json

from relquery.backends.schemas.closed import closed
from tests.schemas import STRUCT


def test_an_object_has_all_its_keys_and_no_others() -> None:
    given = json.loads(STRUCT)
    keys = ["name", "age", "ok", "mood", "tags"]
    assert closed(STRUCT) == given | {"required": keys, "additionalProperties": False}
    assert list(closed(STRUCT)["properties"]) == keys


def test_objects_are_closed_wherever_they_are() -> None:
    inner = {"type": "object", "properties": {"a": {}}, "required": []}
    shut = inner | {"required": ["a"], "additionalProperties": False}
    for around in (
        lambda it: {"type": "array", "items": it},
        lambda it: {"anyOf": [it, {"type": "null"}]},
        lambda it: {"prefixItems": [it, True]},
        lambda it: {"$defs": {"it": it}, "$ref": "#/$defs/it"},
        lambda it: {"type": "object", "additionalProperties": it},
    ):
        assert closed(json.dumps(around(inner))) == around(shut)


def test_what_is_no_object_with_keys_stays_as_it_is() -> None:
    for schema in (
        {"type": "integer", "minimum": 3},
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"enum": [{"properties": {"a": 1}}]},
        {"allOf": [{"type": "object", "properties": {"a": {}}}, {"properties": {"b": {}}}]},
        {
            "properties": {"properties": {"type": "string"}},
            "required": ["properties"],
            "additionalProperties": False,
        },
    ):
        assert closed(json.dumps(schema)) == schema
