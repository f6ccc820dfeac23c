"""Calls under way in one loop: each a batch of prompts, one relQuery of the engine."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count

from relquery.backends.local.asking import Asking, cancelled
from relquery.backends.local.streaming import Piece, TextStream
from relquery.engine.loop import Loop
from relquery.engine.request.pieces import Chain
from relquery.engine.request.relquery import Latency, RelQuery
from relquery.engine.request.request import Request
from relquery.errors import RequestError
from relquery.prompt import Answer, Finish


@dataclass(slots=True, eq=False)
class Batch:
    """The prompts of one call on their way to answers.

    group: its number in the engine. relquery: None if no prompt could be submitted. open: requests
    that have not ended, and the place of their prompt. ready: (index into prompts, answer) in the
    order in which they ended; the caller takes them out.
    """

    group: int
    asking: Asking
    relquery: RelQuery | None = None
    open: dict[Request, int] = field(default_factory=dict)
    ready: deque[tuple[int, Answer]] = field(default_factory=deque)
    streams: dict[Request, TextStream] | None = None
    pieces: deque[tuple[int, Piece]] = field(default_factory=deque)

    @property
    def latency(self) -> Latency | None:
        """See RelQuery.latency."""
        return None if self.relquery is None else self.relquery.latency


class Batches:
    """The open batches of a loop, which runs their requests alone. Not thread-safe."""

    def __init__(self, engine: Loop) -> None:
        self._engine = engine
        self._open: dict[int, Batch] = {}
        self._streaming: dict[int, Batch] = {}
        self._groups, self._numbers = count(), count()

    def submit(
        self,
        asking: Asking,
        prompts: Iterable[Chain | RequestError],
        tenant: str = "",
        arrival: float | None = None,
        streamed: bool = False,
    ) -> Batch:
        """Queue all prompts as one relQuery; `step` then serves them. Runs no step itself.

        A prompt that cannot be served has its answer, with an error, in the batch at once.
        tenant, arrival: see Loop.submit. streamed: give the answers piece by piece, too.
        """
        batch = Batch(next(self._groups), asking)
        self._open[batch.group] = batch
        if streamed:
            batch.streams = {}
            self._streaming[batch.group] = batch
        try:
            for index, prompt in enumerate(prompts):
                self._take_in(batch, index, prompt, tenant, arrival)
        except BaseException:
            self.cancel(batch)
            raise
        self._forget_ended(batch)
        return batch

    def step(self) -> None:
        """Run one step of the engine, and put the answers that it gave into their batches.

        May be called only while a request is open.
        """
        for request in self._engine.step():
            batch = self._open[request.group]
            index = batch.open.pop(request)
            answer = batch.asking.answer(request)
            if batch.streams is not None:
                rest = batch.streams.pop(request).end(answer)
                batch.pieces += () if rest is None else ((index, rest),)
            batch.ready.append((index, answer))
            self._forget_ended(batch)
        for batch in self._streaming.values():
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
        for request, index in batch.open.items():
            self._engine.cancel(request)
            batch.ready.append((index, cancelled(request)))
        batch.open.clear()
        if batch.streams is not None:
            batch.streams.clear()
        self._forget_ended(batch)

    def close(self) -> None:
        """Cancel all that is open, and let go of the engine."""
        for batch in list(self._open.values()):
            self.cancel(batch)
        del self._engine

    def _take_in(
        self,
        batch: Batch,
        index: int,
        prompt: Chain | RequestError,
        tenant: str,
        arrival: float | None,
    ) -> None:
        length = 0
        try:
            if isinstance(prompt, RequestError):
                raise prompt
            request = batch.asking.request(next(self._numbers), batch.group, prompt)
            length = request.prompt_tokens
            batch.asking.limit(request)
            batch.relquery = self._engine.submit(request, tenant, arrival)
            batch.open[request] = index
            if batch.streams is not None:
                batch.streams[request] = batch.asking.stream()
        except RequestError as error:
            refused = Answer(None, Finish.ERROR, str(error), prompt_tokens=length)
            batch.ready.append((index, refused))

    @staticmethod
    def _spell(batch: Batch) -> None:
        """Add what a step has drawn to a batch's pieces."""
        assert batch.streams is not None
        for request, stream in batch.streams.items():
            piece = stream.take(request.output, request.logprobs)
            if piece is not None:
                batch.pieces.append((batch.open[request], piece))

    def _forget_ended(self, batch: Batch) -> None:
        if not batch.open:
            self._open.pop(batch.group, None)
            self._streaming.pop(batch.group, None)
