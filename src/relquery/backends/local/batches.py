"""Calls under way in one loop: each a batch of prompts, of one relQuery of the engine."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count

from relquery.backends.local.asking import Asking, Piece, TextStream, cancelled, ended
from relquery.engine.loop import Loop
from relquery.engine.requests.declared import NOTHING, Declared
from relquery.engine.requests.pieces import Chain
from relquery.engine.requests.relquery import Latency, RelQuery
from relquery.engine.requests.request import Request
from relquery.engine.step.answer import failed
from relquery.errors import DeadlineError, RequestError
from relquery.prompt import Answer, Finish


@dataclass(slots=True, eq=False)
class Batch:
    """The prompts of one call on their way to answers.

    relquery: that they belong to, alone or with those of other calls; None if no prompt could be
    submitted. open: requests that have not ended, and the place of their prompt. ready: (index into
    prompts, answer) in the order in which they ended; the caller takes them out. arrival, started,
    prefilled, ended: as of a RelQuery, of its own requests. news: where the batch is noted when
    there is something to take out, or when it has ended.
    """

    asking: Asking
    relquery: RelQuery | None = None
    open: dict[Request, int] = field(default_factory=dict)
    ready: deque[tuple[int, Answer]] = field(default_factory=deque)
    streams: dict[Request, TextStream] | None = None
    pieces: deque[tuple[int, Piece]] = field(default_factory=deque)
    arrival: float = 0.0
    started: float | None = None
    prefilled: float | None = None
    ended: float | None = None
    news: dict[Batch, None] | None = None

    def note(self) -> None:
        """Make known that there is something to take out."""
        if self.news is not None:
            self.news[self] = None

    @property
    def latency(self) -> Latency | None:
        """Of its own requests; None before it ends, or if it ended without being started."""
        if self.open or self.started is None or self.ended is None:
            return None
        computed = self.ended if self.prefilled is None else self.prefilled
        return Latency(self.started - self.arrival, computed - self.started, self.ended - computed)

    def end(self, request: Request) -> int:
        """Note that a request has ended; returns the place of its prompt."""
        self.ended = request.finished_at
        started, first = request.started_at, request.first_at
        if started is not None:
            self.started = started if self.started is None else min(started, self.started)
        if first is not None:
            self.prefilled = first if self.prefilled is None else max(first, self.prefilled)
        return self.open.pop(request)


class Batches:
    """The open batches of a loop, which runs their requests alone. Not thread-safe."""

    def __init__(self, engine: Loop) -> None:
        self._engine = engine
        self._open: dict[Request, Batch] = {}
        self._streaming: dict[Batch, None] = {}
        self._groups, self._numbers = count(), count()

    def submit(
        self,
        asking: Asking,
        prompts: Iterable[Chain | RequestError],
        tenant: str = "",
        arrival: float | None = None,
        streamed: bool = False,
        declared: Declared | None = None,
    ) -> Batch:
        """Queue all prompts as one relQuery; `step` then serves them. Runs no step itself.

        A prompt that cannot be served has its answer, with an error, in the batch at once.
        tenant, arrival: see Loop.submit. streamed: give the answers piece by piece, too. declared:
        what the client says about the relQuery, which may already be known by its id. Raises
        DeadlineError if the deadline cannot be met.
        """
        batch, group = Batch(asking), next(self._groups)
        declared = declared or NOTHING
        if streamed:
            batch.streams = {}
            self._streaming[batch] = None

        def submit(request: Request) -> RelQuery:
            return self._engine.submit(request, tenant, arrival, declared)

        try:
            for index, prompt in enumerate(prompts):
                self._take_in(batch, index, group, prompt, submit)
            if batch.relquery is not None:
                self._engine.check_deadline(batch.relquery)
        except DeadlineError:
            self._withdraw(batch)
            raise
        except BaseException:
            self.cancel(batch)
            raise
        self._engine.decline(tenant, declared, len(batch.ready))
        return batch

    def step(self) -> None:
        """Run one step of the engine, and put the answers that it gave into their batches.

        May be called only while a request is open.
        """
        for request in self._engine.step():
            self._hand_out(request)
        for batch in list(self._streaming):
            self._spell(batch)

    def serve(self, batch: Batch) -> Iterator[tuple[int, Answer] | None]:
        """None at first, then a batch's answers; steps are run as need be.

        Closing the iterator cancels what is open, once the first item has been taken.
        """
        try:
            yield None
            while batch.open or batch.ready:
                while batch.ready:
                    yield batch.ready.popleft()
                if batch.open:
                    self.step()
        finally:
            self.cancel(batch)

    def cancel(self, batch: Batch) -> None:
        """End a batch's open requests; they have answers that say so. For an ended one nothing."""
        for request in list(batch.open):
            self._engine.cancel(request)
            del self._open[request]
            batch.ready.append((batch.end(request), cancelled(request)))
        if batch.streams is not None:
            batch.streams.clear()
        batch.note()
        self._forget_ended(batch)

    def close(self) -> None:
        """Cancel all that is open, and let go of the engine."""
        for batch in list(dict.fromkeys(self._open.values())):
            self.cancel(batch)
        del self._engine

    def _withdraw(self, batch: Batch) -> None:
        """Take back all requests of a batch that has not begun."""
        for request in batch.open:
            self._engine.withdraw(request)
            del self._open[request]
        batch.open.clear()
        self._forget_ended(batch)

    def _take_in(
        self,
        batch: Batch,
        index: int,
        group: int,
        prompt: Chain | RequestError,
        submit: Callable[[Request], RelQuery],
    ) -> None:
        try:
            if isinstance(prompt, RequestError):
                raise prompt
            request = batch.asking.request(next(self._numbers), group, prompt)
            batch.asking.limit(request)
            batch.relquery = submit(request)
        except DeadlineError:
            raise
        except Exception as error:
            why = str(error) if isinstance(error, RequestError) else failed(error)
            batch.ready.append((index, Answer(None, Finish.ERROR, why)))
            return
        if not batch.open:
            batch.arrival = request.arrival
        batch.open[request], self._open[request] = index, batch
        if batch.streams is not None:
            batch.streams[request] = batch.asking.stream(request)

    def _hand_out(self, request: Request) -> None:
        """Put the answer of a request that has ended into its batch."""
        batch = self._open.pop(request)
        index = batch.end(request)
        stream = None if batch.streams is None else batch.streams.pop(request)
        try:
            answer = batch.asking.answer(request)
            rest = None if stream is None else stream.end(answer)
        except Exception as error:
            answer, rest = ended(request, Finish.ERROR, failed(error)), None
        batch.pieces += () if rest is None else ((index, rest),)
        batch.ready.append((index, answer))
        batch.note()
        self._forget_ended(batch)

    def _spell(self, batch: Batch) -> None:
        """Add what a step has drawn to a batch's pieces."""
        assert batch.streams is not None
        for request, stream in list(batch.streams.items()):
            try:
                piece = stream.take(request.output, request.logprobs)
            except Exception as error:
                self._engine.fail(request, error)
                self._hand_out(request)
                continue
            if piece is not None:
                batch.pieces.append((batch.open[request], piece))
                batch.note()

    def _forget_ended(self, batch: Batch) -> None:
        if not batch.open:
            self._streaming.pop(batch, None)
