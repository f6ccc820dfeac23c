"""What the routes of a server have in common: the engine, who asks, and what may be asked."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from relquery.backends.local.asking import Piece
from relquery.backends.remote.link import Link
from relquery.backends.service.client import EngineClient, Facts, Submission
from relquery.engine.requests.declared import Declared
from relquery.engine.requests.relquery import Latency
from relquery.prompt import Answer, Prompt, Sampling
from relquery.serve.access.gate import Asker, Gate
from relquery.serve.errors import HttpError, stopping
from relquery.serve.flow import Flow
from relquery.serve.operation.measures import Measures
from relquery.serve.operation.pressure import Pressure, asked
from relquery.serve.operation.tally import Counted, Tally
from relquery.serve.settings import ServeConfig
from relquery.serve.spelling import Spelling

T = TypeVar("T")


class Asked(NamedTuple):
    """Prompts that are asked with one sampling. adapter: that answers, "" for the usual one."""

    prompts: Sequence[Prompt]
    sampling: Sampling
    adapter: str = ""


class Server:
    """One engine and those who ask it. Made in the event loop that serves.

    link: to the engine's process. gate: who may ask. open: prompts that have no answer yet.
    serving: HTTP requests that are being served. measures: what is counted and timed. began:
    seconds since 1970. spelling: of the model's tokens.
    """

    def __init__(self, config: ServeConfig, link: Link, gate: Gate) -> None:
        self.config, self.link, self.gate = config, link, gate
        self.open = self.serving = 0
        self.stopping = False
        self.began = int(time.time())
        self.spelling = Spelling(self.ask)
        self.measures = Measures(link.facts.policy)
        self._pressure = Pressure(self.ask)
        self._kept: dict[type, object] = {}

    def keep(self, thing: object) -> None:
        """Keep what routes need for the life of the server; `kept` gives it by its class."""
        self._kept[type(thing)] = thing

    def kept(self, kind: type[T]) -> T:
        """What was kept of a class."""
        thing = self._kept[kind]
        assert isinstance(thing, kind)
        return thing

    @property
    def facts(self) -> Facts:
        """Of the model."""
        return self.link.facts

    @property
    def models(self) -> tuple[str, ...]:
        """Names by which clients may call the model or an adapter; the first is the usual one."""
        return (*self.config.called, *self.config.adapters)

    def check_model(self, name: str) -> str:
        """The adapter that a name means, "" for the usual one. Raises HttpError for a model that is
        not served."""
        if name not in self.models:
            raise HttpError(
                404,
                f"The model '{name}' is not served. Served: {', '.join(self.models)}.",
                "model_not_found",
                "model",
            )
        return name if name in self.config.adapters else ""

    def start(
        self,
        groups: Sequence[Asked],
        asker: Asker,
        *,
        streamed: bool = False,
        declared: Declared | None = None,
        **more: Any,
    ) -> Flow:
        """Ask prompts as one relQuery; the prompts of all groups are counted through.

        streamed: answers also come piece by piece. more: other fields of Submission.

        Raises HttpError where too many requests are open.
        """
        size = sum(len(each.prompts) for each in groups)
        self._admit(size)
        asker.account.prompts += size
        flow = Flow(size, self._drop)
        self.open += size
        shares, base = [], 0
        for each in groups:
            shares.append(Share(self, flow, base, len(each.prompts), asker))
            base += len(each.prompts)
        flow.shares = shares
        if len(groups) > 1:
            declared = _named(declared, size)
        more |= {"streamed": streamed, "declared": declared}
        for share, (prompts, sampling, adapter) in zip(shares, groups, strict=True):
            asked = Submission(list(prompts), sampling, asker.tenant, adapter=adapter, **more)
            if not self.link.submit(asked, share):
                self._drop(flow)
                raise stopping()
        return flow

    def backend(
        self, asker: Asker, declared: Declared | None = None, adapter: str = ""
    ) -> EngineClient:
        """The engine for one thread that asks for somebody.

        declared: what is known of the relQuery; all of its calls belong to it. adapter: that
        answers, "" for the usual one.
        """
        counted = Counted(self.link, self.measures, asker, self._opened)
        return EngineClient(counted, self.facts, asker.tenant, _named(declared), adapter)

    async def ask(self, question: str, *given: Any) -> Any:
        """See Serving.ask; does not hold up the event loop."""
        return await asked(self.link, question, *given)

    def check_open(self) -> None:
        """Raises HttpError if the server takes no more requests."""
        if self.stopping:
            raise stopping()

    def _admit(self, size: int) -> None:
        self.check_open()
        most = min(self.config.max_rows, self.config.max_waiting)
        if size > most:
            raise HttpError(
                400,
                f"{size:,} prompts are more than the {most:,} that one request "
                "may have. Send fewer at once.",
                "too_many_rows",
            )
        self.check_room(size)

    def check_room(self, size: int = 1) -> None:
        """Raises HttpError if so many more prompts may not be open."""
        if self.open + size > self.config.max_waiting:
            raise HttpError(
                429,
                f"{self.open:,} requests are open, and at most {self.config.max_waiting:,} may be. "
                "Ask again later.",
                "queue_full",
                headers={"Retry-After": str(self._pressure.retry_after())},
            )

    def _opened(self, more: int) -> None:
        """Count prompts of another thread, in the event loop: those of it are counted there."""

        def count() -> None:
            self.open += more

        if self.link.hop is not None:
            self.link.hop(count)

    def _drop(self, flow: Flow) -> None:
        for share in flow.shares:
            self.link.drop(share)
            share.leave()


class Share:
    """The Sink of one group of a flow's prompts. base: the place of its first prompt."""

    def __init__(self, server: Server, flow: Flow, base: int, size: int, asker: Asker) -> None:
        self._server, self._flow, self._base = server, flow, base
        self._left, self._tally = size, Tally(server.measures, asker)

    def piece(self, index: int, piece: Piece) -> None:
        self._flow.piece(self._base + index, piece)

    def add(self, index: int, answer: Answer) -> None:
        self._left -= 1
        self._server.open -= 1
        self._tally.answered(answer)
        self._flow.add(self._base + index, answer)

    def end(self, latency: Latency | None, error: BaseException | None = None) -> None:
        self.leave()
        self._tally.ended(latency, error)
        self._flow.end(latency, error)

    def leave(self) -> None:
        """What has no answer will get none."""
        self._server.open -= self._left
        self._left = 0


def _named(declared: Declared | None, rows: int | None = None) -> Declared:
    """What makes several jobs one relQuery: its client's name for it, or one of ours."""
    if declared is not None and declared.id is not None:
        return declared
    name = f"relquery {secrets.token_hex(8)}"
    return Declared(name, rows, None if declared is None else declared.deadline)
