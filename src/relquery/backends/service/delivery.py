"""A job's answers on their way from the engine's thread to those who wait for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Protocol, TypeVar

from relquery.backends.base import OnAnswer
from relquery.backends.local.streaming import Piece
from relquery.engine.executor import Clock
from relquery.engine.requests.relquery import Latency
from relquery.errors import ConfigError
from relquery.prompt import Answer

Bell = SimpleQueue[None]
T = TypeVar("T")
TICK = 0.25  # seconds that a wait lasts at most: on Windows Ctrl-C is heard only between waits


def heard(
    bell: SimpleQueue[T], until: float | None, clock: Clock, is_alive: Callable[[], bool]
) -> T:
    """The next thing that a thread puts in. See Serving.hear.

    is_alive: whether the thread still runs.
    """
    while True:
        alive = is_alive()  # before the wait: afterwards it puts nothing in
        left = TICK if until is None else min(TICK, max(0.0, until - clock.now()))
        try:
            return bell.get(timeout=left)
        except Empty:
            if not alive:
                raise ConfigError("The engine has stopped. Open another one.") from None
            if until is not None and clock.now() >= until:
                raise TimeoutError from None


class Sink(Protocol):
    """Where a job's answers go. The engine's thread calls it, in this order; it must not wait."""

    def piece(self, index: int, piece: Piece) -> None:
        """A part of an answer has been drawn; only for jobs that are streamed."""

    def add(self, index: int, answer: Answer) -> None:
        """An answer has come."""

    def end(self, latency: Latency | None, error: BaseException | None = None) -> None:
        """No more answers come. error: what broke the job."""


class Delivery:
    """One thread puts answers in, any number of others follow them.

    size: answers that will come. keep: is held until the end, so that what computes the answers
    lives as long as somebody waits for them.

    came: (index into prompts, answer) so far. over: whether all have come, or an error. latency,
    error: None before that.
    """

    def __init__(self, size: int, keep: object) -> None:
        self.size, self.came, self.over = size, list[tuple[int, Answer]](), size == 0
        self.latency: Latency | None = None
        self.error: BaseException | None = None
        self._keep = keep
        self._bells: list[Bell] = []
        self._listeners: list[OnAnswer] = []
        self._lock = Lock()

    def piece(self, index: int, piece: Piece) -> None:
        """Nobody who waits for whole answers reads pieces."""

    def add(self, index: int, answer: Answer) -> None:
        """An answer has come."""
        with self._lock:  # told before it can be taken
            for on_answer in self._listeners:
                on_answer(index, answer)
            self.came.append((index, answer))
        self._ring()

    def listen(self, on_answer: OnAnswer) -> None:
        """Have answers told as they come, and those that have come at once."""
        with self._lock:
            self._listeners.append(on_answer)
            came = list(self.came)
        for each in came:
            on_answer(*each)

    def end(self, latency: Latency | None, error: BaseException | None = None) -> None:
        """No more answers come. error: what broke the job."""
        self.latency, self.error, self.over = latency, error, True
        self._ring()
        self._keep = None

    def follow(self, wait: Callable[[Bell], None]) -> Iterator[tuple[int, Answer]]:
        """All answers, those that have come at once. Raises what broke the job, at the end.

        wait: returns once something is in the queue that it gets, and takes that out.
        """
        bell: Bell = SimpleQueue()
        self._bells.append(bell)
        seen = 0
        try:
            while True:
                over = self.over  # read before the answers, none of which comes after it
                while seen < len(self.came):
                    yield self.came[seen]
                    seen += 1
                if over:
                    break
                wait(bell)
        finally:
            self._bells.remove(bell)
        if self.error is not None:
            raise self.error

    def _ring(self) -> None:
        for bell in tuple(self._bells):
            bell.put(None)
