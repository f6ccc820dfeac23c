"""Prompts that are sent to a server that a test writes as a coroutine, in time that costs none."""

from __future__ import annotations

import asyncio
import json
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Any, TypeVar

from relquery.backends.provider.budget import Budget, CallCounter, Usd
from relquery.backends.provider.client import RawReply
from relquery.backends.provider.codec import RequestCodec
from relquery.backends.provider.config import ProviderConfig
from relquery.backends.provider.dispatch import RequestDispatcher, SharedState
from relquery.backends.provider.failure_policy import ENOUGH, FailurePolicy
from relquery.backends.provider.limiter import Limiter
from relquery.backends.provider.server import ProviderServer
from relquery.backends.provider.spending import Amount
from relquery.backends.wires.errors import ProviderError
from relquery.backends.wires.messages import Messages
from relquery.backends.wires.openai import OpenAIWire
from relquery.backends.wires.reply import Reply, Usage
from relquery.backends.wires.response_format import limit_of
from relquery.backends.wires.wire import Json, Wire
from relquery.prompt import Answer, Sampling, Span

Result = TypeVar("Result")


class _Skipping(selectors.DefaultSelector):
    """Waits for nothing: the clock is set forward by the time that it should have waited."""

    clock = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "all wait for one another"
            self.clock += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its clock begins at 0, and goes on only while all wait."""

    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.clock


def run(work: Callable[[], Coroutine[Any, Any, Result]]) -> tuple[Result, float]:
    """What a coroutine gives, and the seconds that it took."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()
        return runner.run(work()), loop.time()


def refusal(status: int, **headers: str) -> ProviderError:
    """A server's answer that is none."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return ProviderError(
        "status", f"The server answered {status}: no.", status, said="no", headers=named
    )


Answering = Callable[[str], Awaitable[Reply | RawReply]]


class FakeWire(OpenAIWire):
    """Requests hold their messages, and replies what `written` makes of them."""

    path, what = "/", "a reply"

    def body(self, messages: Messages, sampling: Sampling, dropped: frozenset[str]) -> Json:
        return {"messages": messages, "max_tokens": limit_of(sampling)}

    def parse(self, body: Any) -> Reply:
        return Reply(body["text"], "stop", body["refusal"], False, Usage(*body["usage"]))


@dataclass(slots=True)
class FakeClient:
    """answering: gives what is said to a question, or raises ProviderError. asked: questions, in
    order. peak: most at once.
    """

    answering: Answering
    asked: list[str] = field(default_factory=list)
    running: int = 0
    peak: int = 0
    url: str = "http://virtual/"
    wire: Wire = field(default_factory=lambda: FakeWire("m"))

    async def send(self, body: bytes) -> RawReply:
        question = str(json.loads(body)["messages"][-1]["content"])
        self.asked.append(question)
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            said = await self.answering(question)
        finally:
            self.running -= 1
        return said if isinstance(said, RawReply) else written(said)


def written(said: Reply, **headers: str) -> RawReply:
    """A reply as it is sent."""
    usage = said.usage
    numbers = usage.prompt, usage.cached, usage.output, usage.written
    text = json.dumps({"text": said.text, "refusal": said.refusal, "usage": numbers})
    return RawReply(text, {name.replace("_", "-"): value for name, value in headers.items()})


def says(text: str, prompt: int = 100, output: int = 5, refusal: str | None = None) -> Reply:
    """What a server says, with what it took."""
    return Reply(text, "stop", refusal, False, Usage(prompt, 0, output))


@dataclass(slots=True)
class Outcome:
    """answers: by index. error: what ended the work. seconds: of the virtual clock. told: what is
    written down of calls, as it comes.
    """

    answers: dict[int, Answer]
    error: Exception | None
    seconds: float
    client: FakeClient
    shared: SharedState
    told: list[tuple[int, Answer]]

    @property
    def texts(self) -> list[str | None]:
        return [self.answers[index].text for index in sorted(self.answers)]


def ask(
    answering: Answering,
    rows: int,
    sampling: Sampling | None = None,
    usd: Usd | None = None,
    shared: SharedState | None = None,
    **config: Any,
) -> Outcome:
    """Ask about so many prompts, "0", "1", ... shared: with an earlier stage."""
    client: Any = FakeClient(answering)
    answers: dict[int, Answer] = {}
    told: list[tuple[int, Answer]] = []
    given = ProviderConfig(api_key="k", **config)
    budget = given.budget if isinstance(given.budget, Amount) else None
    if shared is None:
        shared = SharedState(
            Limiter(given.rpm, given.tpm), Budget(budget, usd, "m"), CallCounter(usd)
        )

    def heard(index: int, answer: Answer) -> None:
        told.append((index, answer))

    def deliver(index: int, answer: Answer) -> None:
        assert index not in answers, f"{index} came twice"
        answers[index] = answer

    async def work() -> Exception | None:
        prompts = [(Span(str(number)),) for number in range(rows)]
        patience = max(ENOUGH, given.max_concurrency)
        policy = FailurePolicy(client.url, given.max_retries, patience, deliver, chance=Random(7))
        codec = RequestCodec(
            client, ProviderServer("m", given), sampling or Sampling(), lambda warning: None
        )
        try:
            await RequestDispatcher(prompts, codec, policy, shared, given, heard).run()
        except ExceptionGroup as group:
            return group.exceptions[0]
        except Exception as error:
            return error
        return None

    error, seconds = run(work)
    if error is None:
        assert sorted(answers) == list(range(rows))
    return Outcome(answers, error, seconds, client, shared, told)


@dataclass(slots=True)
class Refilled:
    """A server's bucket: so many a minute, and a part of that at once."""

    limit: float
    part: float = 1 / 6
    level: float = -inf
    at: float = 0.0

    def take(self, amount: float, now: float) -> bool:
        most = self.limit * self.part
        self.level = most if self.level == -inf else self.level
        self.level = min(most, self.level + (now - self.at) * self.limit / 60)
        self.at = now
        if self.level < amount:
            return False
        self.level -= amount
        return True
