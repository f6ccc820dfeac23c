"""The form that an answer must have, as a schema that a server holds it to, or in words."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from functools import lru_cache
from typing import Any

from relquery.backends.schemas import closed, rebuilt
from relquery.backends.wires.messages import Messages, with_rule
from relquery.prompt import Sampling

_BOUNDS, _FAR = {"minimum", "maximum"}, 2**31 - 1
_KEPT = 64
"""Samplings whose schemas are kept, as each call asks for them."""

TOLD = "told"
"""What a request does without if it does not leave it to the prompt to tell the labels."""


def as_sent(sampling: Sampling, dropped: Collection[str]) -> Sampling:
    """What a request asks for."""
    return replace(sampling, told=False) if TOLD in dropped else sampling


@lru_cache(_KEPT)
def limit_of(sampling: Sampling) -> int:
    """Tokens that an answer may have: a choice in its form has fewer than characters."""
    around = len(_wrapped("")) if is_wrapped(sampling) else 0
    most = sampling.max_tokens + around
    return max([most, *(len(_wrapped(text)) for text in sampling.labels)])


def says_in_words(sampling: Sampling, dropped: Collection[str]) -> bool:
    """Whether what the answer must be is asked in words: the server refuses to be told, or the
    answer's first token is to be that of a label."""
    return sampling.scored or "response_format" in dropped or setting_of(sampling) in dropped


def held_to(
    messages: Messages, sampling: Sampling, dropped: Collection[str]
) -> tuple[Messages, dict[str, Any] | None]:
    """Messages, and the schema that the server is to hold the answer to; None where they say it."""
    schema = schema_of(sampling)
    if schema is None or not says_in_words(sampling, dropped):
        return messages, schema
    return with_rule(messages, _rule(sampling)), None


def setting_of(sampling: Sampling) -> str:
    """The setting that a server refuses if it cannot follow what the answer must be.

    One that refuses a schema may follow others, and labels.
    """
    return "response_format" if sampling.schema is None else f"schema {sampling.schema}"


@lru_cache(_KEPT)
def is_wrapped(sampling: Sampling) -> bool:
    """Whether a schema is sent as that of the only key of an object: servers take objects alone."""
    return sampling.schema is not None and closed(sampling.schema).get("type") != "object"


def _wrapped(text: str) -> str:
    return json.dumps({"answer": text})


@lru_cache(_KEPT)
def schema_of(sampling: Sampling) -> dict[str, Any] | None:
    """The schema that lets through the right answers alone.

    None if all are right, or if the prompt says which are.
    """
    if sampling.told:
        return None
    if sampling.labels:
        labels = list(dict.fromkeys(sampling.labels))
        return _only_answer({"type": "string", "enum": labels})
    if sampling.schema is None:
        return None
    schema: dict[str, Any] = _without_far_bounds(closed(sampling.schema))
    if not is_wrapped(sampling):
        return schema
    shared = {name: schema.pop(name) for name in ("$defs", "definitions") if name in schema}
    return _only_answer(schema) | shared


def _without_far_bounds(schema: Any, place: str = "") -> Any:
    """A schema without those bounds of integers that are the type's: they take tokens of each row,
    and answers are checked in any case.
    """
    del place
    if not isinstance(schema, dict):
        return schema
    kept = dict(schema)
    if schema.get("type") == "integer":
        for name in _BOUNDS & schema.keys():
            if isinstance(schema[name], int) and abs(schema[name]) >= _FAR:
                del kept[name]
    return rebuilt(kept, _without_far_bounds)


def _only_answer(schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"answer": schema},
        "required": ["answer"],
        "additionalProperties": False,
    }


def _rule(sampling: Sampling) -> str:
    """What the answer must be, in words."""
    if sampling.schema is None:
        texts = json.dumps(sampling.labels, ensure_ascii=False)
        return f"Answer with exactly one of these texts, without quotes: {texts}"
    schema = json.dumps(closed(sampling.schema), ensure_ascii=False)
    return f"Answer with nothing but JSON that is valid under this JSON Schema: {schema}"
