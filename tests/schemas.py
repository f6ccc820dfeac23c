"""Random JSON Schemas of types that bound their lengths."""

from __future__ import annotations

import json
from random import Random
from typing import Any

WORDS = ("good", "bad", "very bad", "é", 'a "b"', "none at all", "name", "naive", "日本")
KEYS = ("name", "age", "ok", "tags", "total amount", "größe", 'k"q', "n", "na")


def bounded(rng: Random, depth: int = 2) -> dict[str, Any]:
    """A schema all of whose answers have a largest length. depth: of arrays and objects."""
    if depth and rng.random() < 0.4:
        return _nested(rng, depth)
    low, least = rng.randint(-200, 100), rng.randint(0, 3)
    kinds: list[dict[str, Any]] = [
        {"enum": rng.sample([*WORDS, 1, 12, True, None], rng.randint(1, 5))},
        {"const": rng.choice(WORDS)},
        {"type": "integer", "minimum": low, "maximum": low + rng.randint(0, 300)},
        {"type": "boolean"},
        {"type": "null"},
        {"type": "string", "minLength": least, "maxLength": least + rng.randint(0, 9)},
        {"type": "string", "format": "date"},
        {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{1,4}$"},
    ]
    return rng.choice(kinds)


def _nested(rng: Random, depth: int) -> dict[str, Any]:
    inside, least = bounded(rng, depth - 1), rng.randint(0, 2)
    keys = rng.sample(KEYS, rng.randint(0, 5))
    record = {"type": "object", "properties": {key: bounded(rng, depth - 1) for key in keys}}
    most = least + rng.randint(0, 2)
    return rng.choice(
        [
            {"type": "array", "items": inside, "minItems": least, "maxItems": most},
            {"anyOf": [inside, {"type": "null"}]},
            record,
            record,
        ]
    )


def as_text(schema: dict[str, Any]) -> str:
    return json.dumps(schema, ensure_ascii=False)


STRUCT = as_text(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
            "ok": {"type": "boolean"},
            "mood": {"enum": ["good", "bad", "very bad"]},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 6}, "maxItems": 2},
        },
    }
)
"""Five fields."""
