"""Sides of a comparison take turns, so that none is ahead by more than a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from benchmarks import turns
from benchmarks.turns import SkippingClock, Turn, alternate
from relquery.engine.clock import RealClock


class Watch:
    """Stands still unless it is told to go on."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    watch = Watch()
    monkeypatch.setattr(turns, "perf_counter", watch)
    return watch


def stepping(
    watch: Watch, seconds: float, steps: int, seen: list[str], name: str
) -> Callable[[Turn], float]:
    def side(turn: Turn) -> float:
        for _ in range(steps):
            watch.seconds += seconds
            seen.append(name)
            turn.pass_on()
        return turn.now()

    return side


def test_each_has_the_seconds_of_its_own_turns_and_those_behind_go_on(watch: Watch) -> None:
    seen: list[str] = []
    sides = {
        "long": stepping(watch, 4.0, 3, seen, "l"),
        "short": stepping(watch, 1.0, 12, seen, "s"),
    }
    assert alternate(sides) == {"long": 12.0, "short": 12.0}
    assert "".join(seen) == "lssssslsssslsss"


def test_one_goes_on_alone_when_the_others_have_ended(watch: Watch) -> None:
    seen: list[str] = []
    sides = {"a": stepping(watch, 1.0, 2, seen, "a"), "b": stepping(watch, 1.0, 4, seen, "b")}
    assert alternate(sides) == {"a": 2.0, "b": 4.0}
    assert "".join(seen) == "abbabb"


def test_turns_happen_within_what_their_side_asks_for(watch: Watch) -> None:
    now: list[str] = []
    seen: list[tuple[str, ...]] = []

    @contextmanager
    def within() -> Iterator[None]:
        now.append("a")
        yield
        now.pop()

    def side(turn: Turn) -> None:
        for _ in range(3):
            watch.seconds += 1.0
            seen.append(tuple(now))
            turn.pass_on()
        seen.append(tuple(now))

    alternate({"a": side, "b": side}, {"a": within})
    assert sorted(seen) == [()] * 4 + [("a",)] * 4
    assert now == []


def test_a_side_that_fails_ends_the_others_and_what_they_happen_in(watch: Watch) -> None:
    now: list[str] = []

    @contextmanager
    def within() -> Iterator[None]:
        now.append("a")
        try:
            yield
        finally:
            now.pop()

    def failing(turn: Turn) -> None:
        watch.seconds += 2.0
        turn.pass_on()
        raise RuntimeError("no room")

    with pytest.raises(RuntimeError, match="no room"):
        alternate({"a": stepping(watch, 1.0, 9, [], "a"), "b": failing}, {"a": within})
    assert now == []


def test_skipped_seconds_count_as_passed(watch: Watch) -> None:
    clock = SkippingClock(RealClock())
    begin = clock.now()
    clock.skip(1_000.0)
    clock.skip(-5.0)
    assert 1_000 <= clock.now() - begin < 1_010
