"""The engine for one statement, which sends its prompts in portions.

What a statement asks leaves room in the queue for others, and no process reads, tokenises or passes
on more of it at once than takes some milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from queue import SimpleQueue
from threading import Lock
from typing import Any, TypeVar

from relquery.backends.local.asking import Piece
from relquery.backends.local.host import Packed, Sink, Submission
from relquery.backends.remote.link import Link
from relquery.engine.requests.relquery import Latency
from relquery.prompt import Answer, Finish
from relquery.serve.errors import bad_request

T = TypeVar("T")
PORTIONS = 4
"""Portions of one job that are open at once: while one is answered, the next ones wait."""
MOST = 500
"""Prompts of a portion."""


class PortionedEngine:
    """An engine that is sent at most `window` prompts of a job at once, and `most` in all. See
    EngineHost; any thread may use it.

    link: to whoever passes them on.
    """

    def __init__(self, link: Link, window: int, most: int) -> None:
        self.clock, self.closed = link.clock, False
        self._link, self._most, self._asked = link, most, 0
        self._rows = 0  # of the relQuery as the engine knows it
        self._size = max(1, min(MOST, window // PORTIONS))
        self._jobs: dict[Sink, _Portions] = {}
        self._lock = Lock()

    def submit(self, submission: Submission, sink: Sink) -> bool:
        """See EngineHost. Raises HttpError for more prompts than the statement may ask."""
        size = len(submission.prompts)
        with self._lock:
            self._asked += size
            self._rows += size
            if self._asked > self._most:
                raise bad_request(
                    f"The statement asks the model more than {self._most:,} prompts, which is all "
                    "that one may ask. Read fewer rows. Whoever runs the server can allow more: "
                    "--max-rows.",
                    "query",
                    "too_many_rows",
                )
        declared, is_long = submission.declared, size > PORTIONS * self._size
        if is_long and declared is not None and declared.rows is None:
            # The engine is told what is still to come.
            submission = replace(submission, declared=replace(declared, rows=self._rows))
        job = self._jobs[sink] = _Portions(
            self._link, submission, sink, self._size, lambda: self._ended(sink, is_long)
        )
        return job.begin()

    def _ended(self, sink: Sink, is_long: bool) -> None:
        del self._jobs[sink]
        if is_long and not self._jobs:  # the engine has forgotten a relQuery with all its rows
            self._rows = 0

    def cancel(self, sink: Sink) -> bool:
        """See EngineHost."""
        job = self._jobs.get(sink)
        return job is not None and job.cancel()

    def ask(self, question: str, *given: Any) -> Any:
        """See EngineHost."""
        if question != "prompt_tokens":
            return self._link.ask(question, *given)
        prompts, sampling = given
        found: list[int] = []
        for start in range(0, len(prompts), self._size):
            some = Packed(prompts[start : start + self._size])
            found += self._link.ask(question, some, sampling)
        return found

    def hear(self, bell: SimpleQueue[T], until: float | None) -> T:
        """See EngineHost."""
        return self._link.hear(bell, until)

    def stop(self) -> None:
        """The engine is not the statement's own."""


class _Portions:
    """One job on its way. sink: of the whole job. ended: called when no more answers come."""

    def __init__(
        self,
        link: Link,
        submission: Submission,
        sink: Sink,
        size: int,
        ended: Callable[[], object],
    ) -> None:
        self.sink, self._link, self._submission = sink, link, submission
        self._size, self._ended = size, ended
        self._next = 0
        self._open: dict[_Portion, None] = {}
        self._lock = Lock()

    def begin(self) -> bool:
        """Send the first portions; False if the engine is closed."""
        if not self._submission.prompts:
            return self._link.submit(self._submission, _Portion(self, 0))
        return all(self._send() for _ in range(PORTIONS))

    def _send(self) -> bool:
        """Send the next portion, if there is one."""
        prompts = self._submission.prompts
        with self._lock:
            start = self._next
            if start >= len(prompts):
                return True
            self._next = min(len(prompts), start + self._size)
            some = Packed(prompts[start : self._next])
            portion = _Portion(self, start)
            self._open[portion] = None
            return self._link.submit(replace(self._submission, prompts=some), portion)

    def cancel(self) -> bool:
        """End what is open; False if nothing is."""
        with self._lock:
            left = range(self._next, len(self._submission.prompts))
            self._next = len(self._submission.prompts)
            open_ = list(self._open)
        error = "It was cancelled before it was asked."
        for index in left:
            self.sink.add(index, Answer(None, Finish.CANCELLED, error=error))
        ended = [self._link.cancel(each) for each in open_]
        return any(ended) or bool(left)

    def end(self, portion: _Portion, latency: Latency | None, error: BaseException | None) -> None:
        """A portion has ended: send the next one. What breaks one breaks the job."""
        others: list[_Portion] = []
        with self._lock:
            self._open.pop(portion, None)
            if error is not None:
                self._next, others = len(self._submission.prompts), list(self._open)
                self._open.clear()
        for each in others:
            self._link.drop(each)
        self._send()
        if not self._open:
            self._ended()
            self.sink.end(latency, error)


class _Portion:
    """The Sink of one portion, called by the link's thread. start: the place of its first prompt in
    the job."""

    def __init__(self, job: _Portions, start: int) -> None:
        self._job, self._start = job, start

    def piece(self, index: int, piece: Piece) -> None:
        self._job.sink.piece(self._start + index, piece)

    def add(self, index: int, answer: Answer) -> None:
        self._job.sink.add(self._start + index, answer)

    def end(self, latency: Latency | None, error: BaseException | None = None) -> None:
        self._job.end(self, latency, error)
