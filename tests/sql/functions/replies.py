"""What the stand-in for a model answers in the tests of functions."""

from __future__ import annotations

from typing import Any

from relquery.prompt import Answer
from tests.sql.fakes import Fields

ANSWERS: dict[str, Any] = {}


def answer(query: str, fields: Fields) -> str | Answer:
    """The answer set for the first line of a prompt; else whether the title begins with A."""
    first = query.partition("\n")[0]
    if first in ANSWERS:
        given = ANSWERS[first]
        reply: str | Answer = given(fields) if callable(given) else given
        return reply
    is_row = isinstance(fields, dict)
    return "Yes" if is_row and str(fields.get("title")).startswith("A") else "No"
