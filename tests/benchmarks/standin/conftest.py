"""The stand-in on loopback, and the providers' own clients of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import anthropic
import openai
import pytest

from benchmarks.standin.provider import Provider
from benchmarks.standin.server import started

ASK: list[Any] = [{"role": "user", "content": "Is it?"}]
LONG = "The rules of the house, once more. " * 200


class Clock:
    """Stands still unless it is told to go on."""

    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass(slots=True)
class Clients:
    """What talks to the stand-in at an address. No client retries by itself."""

    url: str
    openai: openai.OpenAI
    anthropic: anthropic.Anthropic

    def chat(self, model: str = "gpt-4o-mini", **fields: Any) -> Any:
        """A completion."""
        return self.openai.chat.completions.create(**{"model": model, "messages": ASK, **fields})

    def message(self, row: str = "Is it?", **fields: Any) -> Any:
        """A message."""
        messages = [{"role": "user", "content": row}]
        asked = {"model": "claude-sonnet-5", "max_tokens": 50, "messages": messages}
        return self.anthropic.messages.create(**{**asked, **fields})


def kept(**control: Any) -> list[Any]:
    """A long system prompt that is marked to be cached."""
    return [{"type": "text", "text": LONG, "cache_control": {"type": "ephemeral", **control}}]


Connect = Callable[[Provider], Clients]


@pytest.fixture
def connect() -> Iterator[Connect]:
    with ExitStack() as stack:

        def start(standin: Provider) -> Clients:
            given: Any = {"api_key": "k", "max_retries": 0, "timeout": 5}
            stack.enter_context(started(standin))
            one = openai.OpenAI(base_url=standin.url, **given)
            two = anthropic.Anthropic(base_url=standin.root, **given)
            return Clients(standin.root, stack.enter_context(one), stack.enter_context(two))

        yield start
