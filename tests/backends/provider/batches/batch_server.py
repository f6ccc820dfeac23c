"""The batch APIs of OpenAI and Anthropic, with what becomes of requests as a function of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from benchmarks.providers.standin.batches.routes import route
from benchmarks.providers.standin.batches.store import Batches
from benchmarks.providers.standin.errors import Refused, provider_of
from benchmarks.providers.standin.forms.asked import Json as Body
from benchmarks.providers.standin.forms.batch import Batch, Outcome
from benchmarks.providers.standin.http import Closed, Request, Response
from benchmarks.providers.standin.scripted import started

__all__ = ["Body", "Outcome", "Refused"]


class BatchServer:
    """answer: what becomes of a request. looks: until a batch has ended. refuse: what creating the
    next one is answered with; "hang up" for none, and "hang up late" for none though it is taken.
    failed: why batches are refused once they are read. spoil: what becomes of results on their way.
    """

    def __init__(
        self,
        answer: Callable[[Body], Outcome],
        looks: int = 1,
        refuse: Refused | str | None = None,
        failed: str | None = None,
        spoil: Callable[[str], str] | None = None,
    ) -> None:
        def outcomes(form: ModuleType, bodies: Sequence[Body], now: float) -> list[Outcome]:
            return [answer(body) for body in bodies]

        self.store = Batches(outcomes, time.time, 0.0, looks, failed)
        self.refuse, self.spoil = refuse, spoil
        self.creations, self.address = 0, ""

    @property
    def url(self) -> str:
        return self.address

    @property
    def batches(self) -> list[Batch]:
        return list(self.store.batches.values())

    @property
    def submitted(self) -> list[str]:
        """The ids of all requests, in order."""
        return [custom for batch in self.batches for custom, _ in batch.lines]

    async def handle(self, request: Request) -> Response:
        refuse = None
        if request.method == "POST" and request.path.endswith("/batches"):
            self.creations += 1
            refuse, self.refuse = self.refuse, None
        try:
            if isinstance(refuse, Refused):
                raise refuse
            if refuse == "hang up":
                raise Closed
            reply = route(self.store, request)
        except Refused as refused:
            return refused.reply(provider_of(request))
        if refuse is not None:
            raise Closed
        if self.spoil is not None and isinstance(reply.body, str):
            return Response(self.spoil(reply.body))
        return reply


@contextmanager
def serving(answer: Callable[[Body], Outcome], **settings: Any) -> Iterator[BatchServer]:
    """A server that runs until the block ends."""
    with started(BatchServer(answer, **settings)) as server:
        yield server
