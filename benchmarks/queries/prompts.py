"""Prompts of SQL calls, taken apart again: what stand-ins for a model answer by."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

from relquery.prompt import Nest, Prompt, Role, Span

_QUERY = "Answer the below query:\n"
_DATA = re.compile(r"\n\nGiven the following (?:data|answers for parts of the data):\n")
_QUERY_OF_EACH = "Answer the below query for each candidate:\n"
_CANDIDATE = re.compile(r"^\d+\. (\{.*\})$", re.MULTILINE)


class Asked(NamedTuple):
    """What a prompt asks, and the fields of the row that it asks it of.

    The texts of a group are one field, `texts`. The items of a bag are one field: a sorted list.
    """

    prompt: str
    fields: dict[str, Any]


def read(prompt: Prompt) -> Asked | None:
    """Take apart what `LLM(...)` or `AI_AGG(...)` sends. None for any other prompt."""
    text = _text(prompt)
    if not text.startswith(_QUERY):
        return None
    query, *data = _DATA.split(text.removeprefix(_QUERY), maxsplit=1)
    fields = json.loads(data[0], object_pairs_hook=_fields) if data else {}
    return Asked(query, {"texts": fields} if isinstance(fields, list) else fields)


def read_candidates(prompt: Prompt) -> list[Asked] | None:
    """Take apart a join condition with `classify`: what it asks of each pair. None for others."""
    text = _text(prompt)
    if not text.startswith(_QUERY_OF_EACH):
        return None
    query, data = _DATA.split(text.removeprefix(_QUERY_OF_EACH), maxsplit=1)
    question, row = query.partition("\n")[0], json.loads(data)
    return [Asked(question, row | json.loads(candidate)) for candidate in _CANDIDATE.findall(query)]


def _text(prompt: Prompt) -> str:
    return "".join(_plain(span) for span in prompt if span.role is Role.USER)


def _plain(span: Span) -> str:
    """The text of a span; of a module too."""
    if isinstance(span.content, Nest):
        return "".join(map(_plain, span.content.spans))
    return str(span.content)


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Fields of one name are items of a bag, whose order means nothing."""
    by_name: dict[str, list[Any]] = {}
    for name, value in pairs:
        by_name.setdefault(name, []).append(value)
    return {name: sorted(of, key=repr) if len(of) > 1 else of[0] for name, of in by_name.items()}


def number(prompt: str, fields: Mapping[str, Any]) -> float:
    """From 0 to 1, spread evenly, by prompt and fields; independent of the order of the fields."""
    content = repr((prompt, sorted(fields.items()))).encode()
    return int.from_bytes(blake2b(content, digest_size=6).digest()) / 2**48
