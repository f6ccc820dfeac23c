"""Servers on loopback, and an environment in which a provider's client finds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from benchmarks.standin.server import Script, Scripted, serving

Serve = Callable[[Script], Scripted]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("OPENAI_API_KEY", "from-environment")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as open_servers:
        yield lambda answer: open_servers.enter_context(serving(answer))
