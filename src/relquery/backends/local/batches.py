"""Calls under way in one loop: each a batch of prompts, of one relQuery of the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count

from relquery.backends.local.asking import Asking, TextStream, cancelled, ended
from relquery.backends.local.host import Sink, Submission
from relquery.engine.loop import Loop
from relquery.engine.requests.declared import NOTHING
from relquery.engine.requests.pieces import Chain
from relquery.engine.requests.relquery import Latency, RelQuery
from relquery.engine.requests.request import Request
from relquery.engine.step.answer import failed
from relquery.errors import DeadlineError, RequestError
from relquery.prompt import Answer, Finish


@dataclass(slots=True, eq=False)
class PromptBatch:
    """The prompts of one call on their way to answers."""

    asking: Asking
    sink: Sink
    relquery: RelQuery | None = None
    """That they belong to, alone or with those of other calls; None if none could be submitted."""
    open: dict[Request, int] = field(default_factory=dict)
    """Requests that have not ended, and the place of their prompt."""
    streams: dict[Request, TextStream] | None = None
    arrival: float = 0.0
    """This and the next: as of a RelQuery, of its own requests."""
    started: float | None = None
    prefilled: float | None = None
    ended: float | None = None

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


class OpenBatches:
    """The open batches of a loop, which runs their requests alone. Not thread-safe."""

    def __init__(self, engine: Loop) -> None:
        self._engine = engine
        self.jobs: dict[Sink, PromptBatch] = {}
        """Those that have open requests, by where their answers go."""
        self._open: dict[Request, PromptBatch] = {}
        self._streaming: dict[PromptBatch, None] = {}
        self._groups, self._numbers = count(), count()

    def submit(
        self,
        asking: Asking,
        prompts: Iterable[Chain | RequestError],
        submission: Submission,
        sink: Sink,
        arrival: float | None = None,
    ) -> None:
        """Queue a job's prompts as one relQuery; `step` then serves them. Runs no step itself.

        A prompt that cannot be served has its answer, with an error, at once. arrival: see
        Loop.submit. The sink hears nothing if this raises. Raises DeadlineError if the deadline
        that the client declares cannot be met.
        """
        batch, group = PromptBatch(asking, sink), next(self._groups)
        tenant, declared = submission.tenant, submission.declared or NOTHING
        refused = list[tuple[int, Answer]]()
        if submission.streamed:
            batch.streams = {}
            self._streaming[batch] = None

        def submit(request: Request) -> RelQuery:
            return self._engine.submit(request, tenant, arrival, declared)

        try:
            for index, prompt in enumerate(prompts):
                why = self._take_in(batch, index, group, prompt, submit)
                if why is not None:
                    refused.append((index, Answer(None, Finish.ERROR, why)))
            if batch.relquery is not None:
                self._engine.check_deadline(batch.relquery)
        except BaseException:
            self._withdraw(batch)
            raise
        self._engine.decline(tenant, declared, len(refused))
        self.jobs[batch.sink] = batch
        for each in refused:
            batch.sink.add(*each)
        self._forget_ended(batch)

    def step(self) -> None:
        """Run one step of the engine, and give the answers that it gave to their batches' sinks.

        May be called only while a request is open.
        """
        for request in self._engine.step():
            self._hand_out(request)
        for batch in list(self._streaming):
            self._spell(batch)

    def forecast(self, sink: Sink) -> float | None:
        """Seconds until the last answer of a job's relQuery; 0 if the job is not open. See
        Loop.forecast."""
        batch = self.jobs.get(sink)
        if batch is None or batch.relquery is None:
            return 0.0
        return self._engine.forecast(batch.relquery.id)

    def cancel(self, sink: Sink) -> bool:
        """End a job's open requests; they have answers that say so. False if there are none."""
        batch = self.jobs.get(sink)
        if batch is None:
            return False
        for request in list(batch.open):
            self._engine.cancel(request)
            del self._open[request]
            batch.sink.add(batch.end(request), cancelled(request))
        if batch.streams is not None:
            batch.streams.clear()
        self._forget_ended(batch)
        return True

    def fail(self, error: BaseException) -> None:
        """End all open batches with an error; those that are submitted later are served."""
        failed, self.jobs, self._open = list(self.jobs.values()), {}, {}
        self._streaming.clear()
        try:
            for batch in failed:
                for request in list(batch.open):
                    self._engine.cancel(request)
                    batch.end(request)
        finally:
            for batch in failed:
                batch.sink.end(batch.latency, error)

    def close(self) -> None:
        """Cancel all that is open, and let go of the engine."""
        for sink in list(self.jobs):
            self.cancel(sink)
        del self._engine

    def _withdraw(self, batch: PromptBatch) -> None:
        """Take back all requests of a batch that has not begun."""
        for request in batch.open:
            self._engine.withdraw(request)
            del self._open[request]
        batch.open.clear()
        self._streaming.pop(batch, None)

    def _take_in(
        self,
        batch: PromptBatch,
        index: int,
        group: int,
        prompt: Chain | RequestError,
        submit: Callable[[Request], RelQuery],
    ) -> str | None:
        """Queue a prompt; why it is refused, else None."""
        try:
            if isinstance(prompt, RequestError):
                raise prompt
            request = batch.asking.request(next(self._numbers), group, prompt)
            batch.asking.limit(request)
            batch.relquery = submit(request)
        except DeadlineError:
            raise
        except Exception as error:
            return str(error) if isinstance(error, RequestError) else failed(error)
        if not batch.open:
            batch.arrival = request.arrival
        batch.open[request], self._open[request] = index, batch
        if batch.streams is not None:
            batch.streams[request] = batch.asking.stream(request)
        return None

    def _hand_out(self, request: Request) -> None:
        """Give the answer of a request that has ended to its batch's sink."""
        batch = self._open.pop(request)
        index = batch.end(request)
        stream = None if batch.streams is None else batch.streams.pop(request)
        try:
            answer = batch.asking.answer(request)
            rest = None if stream is None else stream.end(answer)
        except Exception as error:
            answer, rest = ended(request, Finish.ERROR, failed(error)), None
        if rest is not None:
            batch.sink.piece(index, rest)
        batch.sink.add(index, answer)
        self._forget_ended(batch)

    def _spell(self, batch: PromptBatch) -> None:
        """Tell a batch's sink what a step has drawn."""
        assert batch.streams is not None
        for request, stream in list(batch.streams.items()):
            try:
                piece = stream.take(request.output, request.logprobs)
            except Exception as error:
                self._engine.fail(request, error)
                self._hand_out(request)
                continue
            if piece is not None:
                batch.sink.piece(batch.open[request], piece)

    def _forget_ended(self, batch: PromptBatch) -> None:
        if not batch.open and self.jobs.pop(batch.sink, None) is not None:
            self._streaming.pop(batch, None)
            batch.sink.end(batch.latency)
