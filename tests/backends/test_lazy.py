"""A backend that is opened when it is first asked."""

from __future__ import annotations

import pytest

from relquery.backends import lazy
from relquery.backends.base import Answers, Backend
from relquery.prompt import Prompt, Sampling


class Slow(Backend):
    """Opening it takes 5 seconds."""

    name = "slow"

    def answer(self, prompts: list[Prompt], sampling: Sampling) -> Answers:  # type: ignore[override]
        return iter(())


def test_its_clock_stands_still_while_it_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(lazy, "perf_counter", lambda: now)

    def load() -> Backend:
        nonlocal now
        now += 5
        return Slow()

    backend = lazy.LazyBackend(load)
    start = backend.clock()
    now += 1
    assert backend.name == "slow"
    now += 2
    assert backend.name == "slow"
    assert backend.clock() - start == 3
