"""What a request asks, whatever its form."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.providers.standin.cache import Reading
from benchmarks.providers.standin.errors import Refused
from benchmarks.providers.standin.prompt import Sent
from benchmarks.providers.standin.rules import RULES, Provider, Rules
from benchmarks.providers.standin.tokens import pieces

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request. most: output tokens; None for no bound. schema: of the answer, if one is asked."""

    model: str
    sent: Sent
    most: int | None
    schema: Mapping[str, Any] | None = None
    streams: bool = False
    counts: bool = True


@dataclass(frozen=True, slots=True)
class Given:
    """An answer. number: of the reply. refused: whether the model declined.

    answered: output tokens. seconds: since the epoch.
    """

    text: str
    cut: bool
    reading: Reading
    answered: int
    number: int
    seconds: int
    refused: bool = False


def rules_of(model: str, providers: tuple[Provider, ...]) -> Rules:
    """The rules of a model at one of these providers. Raises Refused."""
    rules = RULES.get(model)
    if rules is None or rules.provider not in providers:
        if providers == ("anthropic",):
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


Make = Callable[[Mapping[str, Any], int], Any]


def instance(schema: Mapping[str, Any], seed: int) -> Any:
    """A value that is valid under a JSON Schema without references. seed: which one."""
    if "const" in schema:
        return schema["const"]
    if options := schema.get("enum"):
        return options[seed % len(options)]
    if options := schema.get("anyOf"):
        return instance(options[seed % len(options)], seed)
    kind = schema.get("type")
    make: Make = _OF_TYPE.get(kind[0] if isinstance(kind, list) else kind, _text)
    return make(schema, seed)


def _object(schema: Mapping[str, Any], seed: int) -> Json:
    fields = schema.get("properties", {})
    return {name: instance(each, seed // 3) for name, each in fields.items()}


def _array(schema: Mapping[str, Any], seed: int) -> list[Any]:
    return [instance(schema.get("items", {}), seed)] * schema.get("minItems", 1)


def _text(schema: Mapping[str, Any], seed: int) -> str:
    del schema
    return "Yes" if seed % 2 else "No"


_OF_TYPE: dict[Any, Make] = {
    "object": _object,
    "array": _array,
    "boolean": lambda schema, seed: seed % 2 == 0,
    "integer": lambda schema, seed: int(schema.get("minimum", seed % 10)),
    "number": lambda schema, seed: float(schema.get("minimum", seed % 10)),
    "null": lambda schema, seed: None,
}
