"""What a request asks and what answers it, whatever the wire."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.standin.cache import Reading
from benchmarks.standin.errors import Refused
from benchmarks.standin.prompt import Sent, pieces
from benchmarks.standin.rules import RULES, Provider, Rules

Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request."""

    model: str
    sent: Sent
    most: int | None
    """Output tokens; None for no bound."""
    schema: Schema | None = None
    """Of the answer, if one is asked."""
    streams: bool = False
    counts: bool = True
    """Whether a stream ends with the usage."""


@dataclass(frozen=True, slots=True)
class Given:
    """An answer."""

    text: str
    cut: bool
    reading: Reading
    answered: int
    """Output tokens."""
    number: int
    """Of the reply."""
    seconds: int
    """Since the epoch."""
    refused: bool = False
    """Whether the model declined."""

    @property
    def parts(self) -> tuple[str | None, str | None]:
        """(the text, the refusal): one of them."""
        return (None, self.text) if self.refused else (self.text, None)


def rules_of(model: str, *providers: Provider) -> Rules:
    """The rules of a model at one of these providers. Raises Refused."""
    rules = RULES.get(model)
    if rules is None or rules.provider not in providers:
        if "anthropic" in providers:
            raise Refused(404, f"model: {model}")
        said = f"The model `{model}` does not exist or you do not have access to it."
        raise Refused(404, said, "model_not_found")
    return rules


def said(asked: Asked, text: str) -> tuple[str, bool]:
    """(the answer, whether it is cut): `text`, or an instance of the schema."""
    if asked.schema is not None:
        text = json.dumps(instance(asked.schema, asked.sent.digest))
    words = pieces(text)
    if asked.most is not None and len(words) > asked.most:
        return "".join(words[: asked.most]), True
    return text, False


def instance(schema: Schema, seed: int) -> Any:
    """A value that is valid under a JSON Schema without references. seed: which one."""
    if "const" in schema:
        return schema["const"]
    if options := schema.get("enum"):
        return options[seed % len(options)]
    if options := schema.get("anyOf"):
        return instance(options[seed % len(options)], seed)
    kind = schema.get("type")
    make = _OF_TYPE.get(kind[0] if isinstance(kind, list) else kind)
    return ("Yes" if seed % 2 else "No") if make is None else make(schema, seed)


_OF_TYPE: dict[Any, Callable[[Schema, int], Any]] = {
    "object": lambda schema, seed: {
        name: instance(each, seed // 3) for name, each in schema.get("properties", {}).items()
    },
    "array": lambda schema, seed: (
        [instance(schema.get("items", {}), seed)] * schema.get("minItems", 1)
    ),
    "boolean": lambda schema, seed: seed % 2 == 0,
    "integer": lambda schema, seed: int(schema.get("minimum", seed % 10)),
    "number": lambda schema, seed: float(schema.get("minimum", seed % 10)),
    "null": lambda schema, seed: None,
}
