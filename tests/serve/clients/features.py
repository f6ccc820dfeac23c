"""What is asked of clients, the features of each, and what comes of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

QUESTION = "What is the weather in Bonn tomorrow?"
CHAT: Any = [{"role": "user", "content": QUESTION}]
ORDER: Any = {
    "type": "object",
    "properties": {"city": {"enum": ["Bonn", "Rome"]}, "days": {"type": "integer", "maximum": 9,
                                                                 "minimum": 0}},
    "required": ["city", "days"],
    "additionalProperties": False,
}  # fmt: skip
TOOL: Any = {"name": "weather", "description": "The weather.", "parameters": ORDER}
TOOLS: Any = [{"type": "function", "function": TOOL}]
LEAST = 400
"""Tokens in which any answer under a schema here ends."""


class Forecast(BaseModel):
    """What answers are to be."""

    city: Literal["Bonn", "Rome"]
    good: bool


@dataclass(frozen=True)
class Target:
    """The server, and the names under which it serves; "" for none."""

    url: str
    model: str
    encoder: str
    tokenizer: str
    """A folder."""

    @property
    def v1(self) -> str:
        return f"{self.url}/v1"


def check(is_right: object, told: object = "") -> None:
    """Raises AssertionError with what was told."""
    if not is_right:
        raise AssertionError(str(told)[:200])


def check_call(name: object, arguments: Any) -> None:
    """Whether it is a call of TOOL that follows ORDER."""
    given = json.loads(arguments) if isinstance(arguments, str) else dict(arguments)
    check(name == "weather" and given["city"] in ("Bonn", "Rome"), (name, given))
    check(0 <= given["days"] <= 9, given)


NEED_A_TOKENIZER = ("lm-eval", "vLLM bench serve")
Feature = Callable[[Target], object]
CLIENTS: dict[str, dict[str, Feature]] = {}


def feature(client: str, name: str) -> Callable[[Feature], Feature]:
    """What a client does, for the table."""

    def add(ask: Feature) -> Feature:
        CLIENTS.setdefault(client, {})[name] = ask
        return ask

    return add


def tried(client: str, name: str, target: Target) -> str:
    """What came of it: "yes", "-" with why it was not tried, or FAILED with what was said."""
    if name == "embeddings" and not target.encoder:
        return "- no encoder is served"
    if client in NEED_A_TOKENIZER and not target.tokenizer:
        return "- the model has no tokenizer.json"
    try:
        CLIENTS[client][name](target)
    except ModuleNotFoundError as error:
        return f"- {error.name} is not installed"
    except BaseException as error:
        return f"FAILED {type(error).__name__}: {' '.join(str(error).split())[:160]}"
    return "yes"
