"""The stand-in on loopback, and the providers' own clients of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import anthropic
import openai
import pytest

from benchmarks.providers.standin.http import running
from benchmarks.providers.standin.server import Standin


@dataclass(slots=True)
class Clients:
    """What talks to the stand-in at an address. No client retries by itself."""

    url: str
    openai: openai.OpenAI
    anthropic: anthropic.Anthropic


Connect = Callable[[Standin], Clients]


@pytest.fixture
def connect() -> Iterator[Connect]:
    with ExitStack() as stack:

        def start(standin: Standin) -> Clients:
            url = stack.enter_context(running(standin.handle))
            one = openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0, timeout=5)
            two = anthropic.Anthropic(base_url=url, api_key="k", max_retries=0, timeout=5)
            return Clients(url, stack.enter_context(one), stack.enter_context(two))

        yield start
