"""Prompts of SQL calls, taken apart again: what stand-ins for a model answer by."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

from relquery.prompt import Prompt, Role

_QUERY = "Answer the below query:\n"
_DATA = "\n\nGiven the following data:\n"


class Asked(NamedTuple):
    """What a prompt asks, and the fields of the row that it asks it of."""

    prompt: str
    fields: dict[str, Any]


def read(prompt: Prompt) -> Asked | None:
    """Take apart what `LLM(...)` sends. None for any other prompt."""
    text = "".join(str(span.content) for span in prompt if span.role is Role.USER)
    if not text.startswith(_QUERY):
        return None
    query, found, data = text.removeprefix(_QUERY).partition(_DATA)
    return Asked(query, json.loads(data) if found else {})


def number(prompt: str, fields: Mapping[str, Any]) -> float:
    """From 0 to 1, spread evenly, by prompt and fields; independent of the order of the fields."""
    content = repr((prompt, sorted(fields.items()))).encode()
    return int.from_bytes(blake2b(content, digest_size=6).digest()) / 2**48
