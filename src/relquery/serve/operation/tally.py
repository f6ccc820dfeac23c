"""Counting what is answered, on its way to those who asked."""

from __future__ import annotations

import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from relquery.backends.local.asking import Piece
from relquery.backends.local.batches import Sink
from relquery.backends.service.client import Serving, Submission
from relquery.engine.requests.relquery import Latency
from relquery.errors import ConfigError
from relquery.prompt import Answer
from relquery.serve.access.gate import Asker
from relquery.serve.errors import stopping
from relquery.serve.operation.measures import Measures

T = TypeVar("T")


class Tally:
    """Counts for one asker: in the server's figures and in the request's account."""

    def __init__(self, measures: Measures, asker: Asker) -> None:
        self._measures, self._asker = measures, asker
        self._began = time.perf_counter()

    def answered(self, answer: Answer) -> None:
        """An answer has come."""
        self._asker.account.answered(answer)
        self._measures.answered(self._asker.tenant, answer, time.perf_counter() - self._began)

    def ended(self, latency: Latency | None, error: BaseException | None) -> None:
        """A relQuery has ended."""
        self._asker.account.ended(latency, error)
        self._measures.ended(self._asker.tenant, latency)


class Counted:
    """An engine for one asker, whose answers are counted. See Serving; any thread may use it.

    opened: called with how many more prompts are open, or less; from any thread.
    """

    def __init__(
        self,
        serving: Serving,
        measures: Measures,
        asker: Asker,
        opened: Callable[[int], None],
    ) -> None:
        self.clock, self.closed = serving.clock, False
        self._serving, self._measures, self._asker = serving, measures, asker
        self._opened = opened
        self._counting: dict[Sink, _Counting] = {}

    def submit(self, submission: Submission, sink: Sink) -> bool:
        """See Serving. Raises HttpError if the engine is closed, and so does `ask`."""
        size = len(submission.prompts)
        self._asker.account.prompts += size
        tally = Tally(self._measures, self._asker)
        counting = _Counting(sink, tally, self._counting, size, self._opened)
        self._counting[sink] = counting
        self._opened(size)
        if not self._serving.submit(submission, counting):
            self._opened(-size)
            raise stopping()
        return True

    def cancel(self, sink: Sink) -> bool:
        """See Serving."""
        counting = self._counting.get(sink)
        return counting is not None and self._serving.cancel(counting)

    def forecast(self, sink: Sink) -> float | None:
        """See Serving."""
        counting = self._counting.get(sink)
        return 0.0 if counting is None else self._serving.forecast(counting)

    def ask(self, question: str, *given: Any) -> Any:
        """See Serving."""
        try:
            return self._serving.ask(question, *given)
        except ConfigError:
            if self._serving.closed:
                raise stopping() from None
            raise

    def hear(self, bell: SimpleQueue[T], until: float | None) -> T:
        """See Serving."""
        return self._serving.hear(bell, until)

    def stop(self) -> None:
        """The engine is not the asker's own."""


class _Counting:
    """A Sink on the way to another one. known: it removes itself there at the end. left: prompts
    without an answer."""

    def __init__(
        self,
        sink: Sink,
        tally: Tally,
        known: dict[Sink, _Counting],
        left: int,
        opened: Callable[[int], None],
    ) -> None:
        self._sink, self._tally, self._known = sink, tally, known
        self._left, self._opened = left, opened

    def piece(self, index: int, piece: Piece) -> None:
        self._sink.piece(index, piece)

    def add(self, index: int, answer: Answer) -> None:
        self._left -= 1
        self._opened(-1)
        self._tally.answered(answer)
        self._sink.add(index, answer)

    def end(self, latency: Latency | None, error: BaseException | None = None) -> None:
        self._opened(-self._left)
        self._known.pop(self._sink, None)
        self._tally.ended(latency, error)
        self._sink.end(latency, error)
