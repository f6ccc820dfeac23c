"""Sides of a comparison take turns, so that none is ahead by more than a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from benchmarks import turns
from benchmarks.turns import SkippingClock, Turn, alternate
from relquery.engine.executor import RealClock


class Watch:
    """Stands still unless it is told to go on. within: what it is within now."""

    def __init__(self) -> None:
        self.seconds, self.seen = 0.0, ""
        self.within: list[str] = []

    def __call__(self) -> float:
        return self.seconds

    def side(self, name: str, seconds: float, steps: int) -> Callable[[Turn], float]:
        """Notes its name at each step, in capitals within what it asks for."""

        def side(turn: Turn) -> float:
            for _ in range(steps):
                self.seconds += seconds
                self.seen += name.upper() if self.within else name
                turn.pass_on()
            return turn.now()

        return side

    @contextmanager
    def entered(self) -> Iterator[None]:
        self.within.append("a")
        try:
            yield
        finally:
            self.within.pop()


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    watch = Watch()
    monkeypatch.setattr(turns, "perf_counter", watch)
    return watch


def test_each_has_the_seconds_of_its_own_turns_and_those_behind_go_on(watch: Watch) -> None:
    sides = {"long": watch.side("l", 4.0, 3), "short": watch.side("s", 1.0, 12)}
    assert alternate(sides) == {"long": 12.0, "short": 12.0}
    assert watch.seen == "lssssslsssslsss"


def test_one_goes_on_alone_when_the_others_have_ended(watch: Watch) -> None:
    assert alternate({"a": watch.side("a", 1, 2), "b": watch.side("b", 1, 4)}) == {"a": 2, "b": 4}
    assert watch.seen == "abbabb"


def test_turns_happen_within_what_their_side_asks_for(watch: Watch) -> None:
    alternate({"a": watch.side("a", 1, 3), "b": watch.side("b", 1, 3)}, {"a": watch.entered})
    assert sorted(watch.seen) == [*"AAAbbb"]
    assert not watch.within


def test_a_side_that_fails_ends_the_others_and_what_they_happen_in(watch: Watch) -> None:
    def failing(turn: Turn) -> float:
        watch.seconds += 2.0
        turn.pass_on()
        raise RuntimeError("no room")

    with pytest.raises(RuntimeError, match="no room"):
        alternate({"a": watch.side("a", 1, 9), "b": failing}, {"a": watch.entered})
    assert not watch.within


def test_skipped_seconds_count_as_passed() -> None:
    clock = SkippingClock(RealClock())
    begin = clock.now()
    clock.skip(1_000.0)
    clock.skip(-5.0)
    assert 1_000 <= clock.now() - begin < 1_010
