"""Sides of a comparison that take turns, often step by step, each with a clock for its own turns.

The speed of a shared machine varies from minute to minute, often by more than the difference to be
measured. If the sides alternate, fast and slow minutes affect all sides equally.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from time import perf_counter
from typing import TypeVar, cast
from unittest.mock import patch

from relquery.arrays import Slots
from relquery.engine.executor import Chunk, Clock, Drawn, Executor
from relquery.engine.loop import Loop
from relquery.engine.requests.request import Request
from relquery.errors import PartialResultWarning

K = TypeVar("K")
T = TypeVar("T")
Within = Callable[[], AbstractContextManager[object]]


class Turn:
    """A side's share of the time.

    wait: lets the others continue. within: a context for the side's turns, entered anew for each.
    """

    def __init__(
        self, sides: list[Turn], wait: Callable[[], None], within: Within = nullcontext
    ) -> None:
        self._sides, self._wait, self._within = sides, wait, within
        self._before, self._since = 0.0, perf_counter()
        self._inside = ExitStack()

    def now(self) -> float:
        """Seconds of this side's turns so far."""
        return self._before + perf_counter() - self._since

    @property
    def lasted(self) -> float:
        """Seconds since this turn began."""
        return perf_counter() - self._since

    def pass_on(self) -> None:
        """Let the others catch up, if this side is ahead of one of them."""
        self._stop()
        try:
            while any(side._before < self._before for side in self._sides):
                self._wait()
        finally:
            self._start()

    def __enter__(self) -> Turn:
        self._sides.append(self)
        self._wait()  # all sides must have arrived before one begins
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._sides.remove(self)

    def _start(self) -> None:
        self._inside.enter_context(self._within())
        self._since = perf_counter()

    def _stop(self) -> None:
        self._before = self.now()
        self._inside.close()


def alternate(
    sides: Mapping[K, Callable[[Turn], T]], within: Mapping[K, Within] | None = None
) -> dict[K, T]:
    """Results of all sides. Each is called with its turn, and passes it on.

    Answers cut by max_tokens give no warning, because a random network never ends an answer itself.
    One context for all sides ignores them: the sides' own contexts would not be nested.

    within: contexts for the turns of some sides.
    """
    from relquery.model.torch_runtime.executor import take_turns

    turns: list[Turn] = []

    def run(name: K, wait: Callable[[], None]) -> T:
        with Turn(turns, wait, (within or {}).get(name, nullcontext)) as turn:
            return sides[name](turn)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PartialResultWarning)
        results = take_turns([partial(run, name) for name in sides])
    return dict(zip(sides, cast(list[T], results), strict=True))


@contextmanager
def passing_on(engine: Loop, turn: Turn, seconds: float = 0.0) -> Iterator[None]:
    """A context in which an engine's steps end turns of at least some seconds."""
    step = engine.step

    def step_and_pass_on() -> list[Request]:
        finished = step()
        if turn.lasted >= seconds:
            turn.pass_on()
        return finished

    with patch.object(engine, "step", step_and_pass_on):
        yield


class SkippingClock:
    """A clock that adds skipped seconds to another clock's time."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._skipped = clock, 0.0

    def now(self) -> float:
        """Seconds since an arbitrary moment, as if the skipped ones had passed."""
        return self._clock.now() + self._skipped

    def skip(self, seconds: float) -> None:
        """Let `seconds` pass at once."""
        self._skipped += max(0.0, seconds)


class AlternatingExecutor:
    """An executor whose steps each end a turn."""

    def __init__(self, executor: Executor, turn: Turn) -> None:
        self._executor, self._turn = executor, turn

    def execute(self, chunks: Sequence[Chunk]) -> list[Drawn | None]:
        """See Executor."""
        drawn = self._executor.execute(chunks)
        self._turn.pass_on()
        return drawn

    def follow(self, tokens: Sequence[int], slots: Slots) -> list[Drawn | None] | None:
        """See Executor."""
        drawn = self._executor.follow(tokens, slots)
        if drawn is not None:
            self._turn.pass_on()
        return drawn
