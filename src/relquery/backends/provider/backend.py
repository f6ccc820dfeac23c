"""A provider, or any server of a provider's form, as a backend."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Thread
from typing import Any
from weakref import finalize

from relquery.backends.base import AnswerStream, Backend, Limits, OnAnswer, Tally
from relquery.backends.provider.budget import Budget, CallCounter, Usd, usd_of, warn_if_unpriced
from relquery.backends.provider.client import ProviderClient
from relquery.backends.provider.codec import RequestCodec
from relquery.backends.provider.config import ProviderConfig
from relquery.backends.provider.dispatch import RequestDispatcher, SharedState
from relquery.backends.provider.failure_policy import ENOUGH, FailFastError, FailurePolicy
from relquery.backends.provider.limiter import Limiter
from relquery.backends.provider.providers import OPENAI, Provider
from relquery.backends.provider.server import ProviderServer
from relquery.errors import ConfigError, ModelError, UnusableAnswersError, warn
from relquery.prices.table import known_price
from relquery.prompt import Answer, Prompt, Sampling

_MOST_STOPS = 4


class ProviderBackend(Backend):
    """A backend that asks a server, `max_concurrency` prompts at a time, in the order given.

    model: the name that the server knows. Raises ModelError for a key that is none,
    MissingExtraError and ConfigError. Without a key, `check` and `answer` raise ModelError.
    """

    def __init__(
        self, model: str, config: ProviderConfig | None = None, provider: Provider = OPENAI
    ) -> None:
        config = config or ProviderConfig()
        self._server = ProviderServer(model, config, provider)
        usd = self._usd()
        budget = config.budget if not isinstance(config.budget, str) else None
        self._shared = SharedState(
            Limiter(config.rpm, config.tpm),
            Budget(budget, usd, model, file=config.budget_file),
            CallCounter(usd),
        )

    def _usd(self) -> Usd | None:
        """What calls cost, where that is known."""
        is_flex = self._server.config.service_tier is not None
        return usd_of(self._server.name, is_flex=is_flex)

    @property
    def name(self) -> str:
        """`PROVIDER:MODEL`, and `@SERVER` unless it is the provider's own."""
        return self._server.name

    @property
    def limits(self) -> Limits:
        """Rates as given, or as learnt so far."""
        config, limiter = self._server.config, self._shared.limiter
        price = None if config.service_tier is None else known_price(self.name)
        return Limits(
            concurrency=config.max_concurrency,
            requests_per_minute=limiter.requests_per_minute,
            tokens_per_minute=limiter.tokens_per_minute,
            price_share=1.0 if price is None or price.flex is None else price.flex,
        )

    def known_as(self) -> tuple[str, ...]:
        """Names of the ledger; the server's address counts if `by_server` says so."""
        return self._server.known_as()

    def tally(self) -> Tally:
        # The event loops that ask measure time by this clock.
        waiting = max(0.0, self._shared.limiter.until - time.monotonic())
        return self._shared.counter.tally(waiting)

    def check(self, sampling: Sampling) -> None:
        if sampling.logprobs is not None:
            raise ConfigError(
                f"logprobs is {sampling.logprobs}; a provider does not tell the token ids that "
                "log-probabilities are given for. Leave it out, or use the embedded engine."
            )
        if len(sampling.stop) > _MOST_STOPS:
            raise ConfigError(
                f"stop has {len(sampling.stop)} strings; a provider accepts at most {_MOST_STOPS}."
            )
        self._server.check(sampling)

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> AnswerStream:
        """Raises ModelError where the server fails all requests alike, and BudgetError.

        Issues SamplingWarning if the server does not take the temperature.
        """
        self.check(sampling)
        warn_if_unpriced(self.name)
        return ServerAnswers(lambda queue: self._serve(prompts, sampling, queue))

    async def _serve(
        self, prompts: Sequence[Prompt], sampling: Sampling, queue: AnswerQueue
    ) -> None:
        """Deliver (index, answer) of every prompt, or what ended the work; None comes last."""
        if queue.is_settled:
            self._server.useful.add(sampling)
        try:
            client = self._server.client(len(prompts))
            try:
                await self._ask(client, prompts, sampling, queue)
            finally:
                await asyncio.shield(client.aclose())
        except Exception as error:
            queue.items.put(_ended_by(error))
        finally:
            queue.items.put(None)

    async def _ask(
        self,
        client: ProviderClient,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        queue: AnswerQueue,
    ) -> None:
        """Put in the answers of all prompts. Raises what ends the work."""
        server, config = self._server, self._server.config
        policy = FailurePolicy(
            client.url,
            config.max_retries,
            max(ENOUGH, config.max_concurrency),
            queue.put,
            is_proven=sampling in server.useful,
        )
        codec = RequestCodec(client, server, sampling, queue.items.put)
        await RequestDispatcher(prompts, codec, policy, self._shared, config, queue.on_answer).run()


_STOP_SECONDS = 5.0

Item = tuple[int, Answer] | Exception | None


@dataclass(slots=True)
class AnswerQueue:
    """A queue of answers, warnings, and what ended the work; None comes last."""

    on_answer: OnAnswer = lambda index, answer: None
    """Called with each answer, in the thread that talks to the server."""
    is_settled: bool = False
    """See AnswerStream.listen."""
    items: SimpleQueue[Item] = field(default_factory=SimpleQueue)

    def put(self, index: int, answer: Answer) -> None:
        """Put in an answer that was told of."""
        self.items.put((index, answer))

    def deliver(self, index: int, answer: Answer) -> None:
        """Tell of an answer, and put it in."""
        self.on_answer(index, answer)
        self.put(index, answer)


class ServerAnswers(AnswerStream):
    """(index, answer) as they come from a server. Work begins when the first is asked for.

    serve: puts in all answers, and what ended the work. Its thread knows the queue alone, so that
        it ends when nobody holds this.
    """

    def __init__(self, serve: Callable[[AnswerQueue], Coroutine[Any, Any, None]]) -> None:
        self._serve, self._queue = serve, AnswerQueue()
        self._stop: Callable[[], object] | None = None

    def listen(self, on_answer: OnAnswer, *, is_settled: bool = False) -> None:
        self._queue = AnswerQueue(on_answer, is_settled)

    def __next__(self) -> tuple[int, Answer]:
        if self._stop is None:
            stop = finalize(self, in_background(self._serve(self._queue)))
            stop.atexit, self._stop = False, stop
        try:
            while isinstance(item := self._queue.items.get(), Warning):
                warn(item)
            if isinstance(item, Exception):
                raise item
        except BaseException:
            self.close()
            raise
        if item is None:
            self.close()
            raise StopIteration
        return item

    def close(self) -> None:
        if self._stop is None:  # nothing has begun, and nothing will
            self._stop = lambda: None
        self._stop()
        self._queue = AnswerQueue()
        self._queue.items.put(None)


def _ended_by(error: Exception) -> Exception:
    first = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
    if isinstance(first, FailFastError):
        return (UnusableAnswersError if first.unusable else ModelError)(str(first))
    return first


def in_background(work: Coroutine[Any, Any, None]) -> Callable[[], None]:
    """Run a coroutine in a thread of its own; gives a function that cancels it and waits."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(work)

    def run() -> None:
        with closing(loop):
            with suppress(asyncio.CancelledError):
                loop.run_until_complete(task)
            # Connections that close were shielded when the work was cancelled.
            loop.run_until_complete(_others())
            loop.run_until_complete(loop.shutdown_asyncgens())

    def stop() -> None:
        with suppress(RuntimeError):  # the loop is closed: nothing is left to cancel
            loop.call_soon_threadsafe(task.cancel)
        thread.join(_STOP_SECONDS)

    # A daemon, so that a name lookup that hangs does not keep the process.
    thread = Thread(target=run, name="relquery-provider", daemon=True)
    thread.start()
    return stop


async def _others() -> None:
    if others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)
