"""The prompt that relquery sends, so that the model is trained on exactly the same text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from training.domains.rows import Value

SYSTEM = (
    "You are a data analyst. Use the provided JSON data to answer the user query based on the "
    "specified fields. Respond with only the answer, no extra formatting."
)
Field = tuple[str, Value]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A query over some fields of one row, in the order in which the model reads them."""

    query: str
    fields: tuple[Field, ...]

    @property
    def messages(self) -> list[dict[str, str]]:
        """Chat messages, ready for a tokenizer's chat template."""
        return [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": user_text(self.query, self.fields)},
        ]


def user_text(query: str, fields: Sequence[Field]) -> str:
    """The user's turn: the query, then the fields as JSON, one per line."""
    return data_text(query) + json_text(fields)


def data_text(query: str) -> str:
    """The user's turn up to the fields."""
    return f"{ask_text(query)}\n\nGiven the following data:\n"


def ask_text(query: str) -> str:
    """The query without data; in training, later turns ask again about the same row."""
    return f"Answer the below query:\n{query}"


def json_text(fields: Sequence[Field]) -> str:
    """The fields as JSON, one per line."""
    lines = ",\n".join(json_line(*field) for field in fields)
    return f"{{\n{lines}\n}}"


def json_line(name: str, value: Value) -> str:
    """A field as JSON."""
    return f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}"
