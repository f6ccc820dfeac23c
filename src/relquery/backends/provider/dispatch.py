"""Prompts sent to a provider, each until it has an answer or fails for good."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any

from relquery.backends.base import OnAnswer
from relquery.backends.provider.budget import Budget, CallCounter
from relquery.backends.provider.codec import Dropped, Outcome, RequestCodec
from relquery.backends.provider.config import ProviderConfig
from relquery.backends.provider.errors import RequestFailure
from relquery.backends.provider.failure_policy import TOO_LONG, FailurePolicy, Tries
from relquery.backends.provider.limiter import Limiter, RequestSize
from relquery.backends.wires.errors import ProviderError
from relquery.backends.wires.messages import Messages, to_messages
from relquery.backends.wires.rate_limits import Headers
from relquery.backends.wires.reply import Usage, no_answer
from relquery.backends.wires.response_format import TOLD
from relquery.backends.wires.wire import Json, encoded
from relquery.errors import RequestError
from relquery.prompt import Answer, Prompt

_LOG = logging.getLogger("relquery")
_LONG_SECONDS = 20.0
"""A wait for a limit that the user is told of."""
_FIRST_SECONDS = 1.0
"""How long others wait for the first request to a server of which nothing is known: one that
refuses a setting says so before it computes."""
_LOOK_SECONDS = 0.25  # between looks at what other threads change
_STOPPED = "The query was stopped before the answer came, which may be billed."
_LAST_SECONDS = 2.0
"""For which answers that are under way, and so paid for, are waited for once a stage has failed."""


@dataclass(slots=True)
class SharedState:
    """State that all calls to one server with one budget share.

    has_told: whether the user was told of a limit that holds calls up for long.
    """

    limiter: Limiter
    budget: Budget
    counter: CallCounter
    has_told: bool = False


@dataclass(slots=True)
class Ticket:
    """A request that may be sent. held: of the budget; reserved: of the limit of tokens."""

    body: Json
    content: bytes
    """The body as it is sent."""
    dropped: Dropped
    need: RequestSize
    held: float
    reserved: float


@dataclass(slots=True)
class RequestGate:
    """Requests pass one behind the other, so that they go in their order.

    Time is that of the running event loop.
    """

    codec: RequestCodec
    shared: SharedState
    policy: FailurePolicy
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _ended: asyncio.Event = field(default_factory=asyncio.Event)
    _first: float | None = None
    """When the first request was sent."""
    _is_read: bool = False
    """Whether the server has taken one as it is."""
    _has_learnt: bool = False
    """Whether a reply has told what calls take."""
    _open: int = 0

    async def enter(self, messages: Messages, dropped: Dropped, *, is_ahead: bool) -> Ticket:
        """Wait until a request may be sent.

        dropped: settings that this one does without. is_ahead: not behind others, which may wait
        for what it learns.
        """
        async with nullcontext() if is_ahead else self._lock:
            if not is_ahead:
                while self._open and not self._may_follow():
                    await self._look(_LOOK_SECONDS)
                while (seconds := self.policy.wait(now())) > 0:
                    await self._look(seconds)
            settings = dropped | self.codec.dropped
            body = self.codec.body(messages, settings)
            content = encoded(body)
            need = RequestSize.of(body, content)
            held = await self._hold(need)
            try:
                while True:
                    seconds, reserved = self.shared.limiter.reserve(need, now())
                    if seconds <= 0:
                        break
                    self._tell(seconds)
                    await asyncio.sleep(min(seconds, _LOOK_SECONDS))
            except BaseException:
                self.shared.budget.give_back(held)
                self._open -= 1
                raise
            self.policy.call_begins()
            self._first = now() if self._first is None else self._first
            return Ticket(body, content, settings, need, held, reserved)

    def answered(self, ticket: Ticket, usage: Usage, headers: Headers) -> None:
        """A request has brought a reply."""
        self.shared.budget.settle(ticket.held, usage, ticket.need)
        self._has_learnt |= usage.prompt > 0 and usage.tells_output
        self._end(ticket, usage, headers)
        self.codec.reached = True
        self._was_read()
        self.shared.limiter.answered(now())
        self.shared.counter.used(usage)

    def failed(self, ticket: Ticket, error: ProviderError, *, is_sent_again: bool) -> None:
        """A request has brought no reply.

        is_sent_again: at once, without a setting. What the server says then is no answer: it may
        fail whatever it is asked.
        """
        if error.may_be_billed:
            self.shared.budget.settle(ticket.held, None)
        else:
            self.shared.budget.refused(ticket.held)
        self._end(ticket, None, error.headers)
        self.codec.reached |= error.status is not None or error.kind == "garbled"
        if error.is_refusal:
            self.shared.limiter.answered(now())
            if not is_sent_again:
                self._was_read()

    def cancelled(self, ticket: Ticket) -> None:
        """A request was given up: the server may have answered."""
        self.shared.budget.settle(ticket.held, None)
        self._end(ticket, None, {})

    def _end(self, ticket: Ticket, usage: Usage | None, headers: Headers) -> None:
        self._open -= 1
        self.policy.call_ends()
        self.shared.limiter.settle(ticket.need, ticket.reserved, usage, headers, now())
        self._ended.set()

    def _was_read(self) -> None:
        self.policy.call_answered()
        self._is_read = True

    def _may_follow(self) -> bool:
        """Whether a request may be sent while others are under way. The first one goes alone: its
        reply tells what calls take, and which settings the server refuses."""
        if self.shared.budget.is_of_tokens:
            return self._has_learnt
        is_late = self._first is not None and now() >= self._first + _FIRST_SECONDS
        return self._is_read or self.codec.is_known or is_late

    def _tell(self, seconds: float) -> None:
        """Say, once, that a limit holds calls up for long."""
        if seconds > _LONG_SECONDS and not self.shared.has_told:
            self.shared.has_told = True
            _LOG.warning(
                "%s, so the next request is sent in %.0f seconds. Raise rpm or tpm (--rpm, --tpm) "
                "if the provider allows more.", self.shared.limiter.reason(now()), seconds,
            )  # fmt: skip

    async def _hold(self, need: RequestSize) -> float:
        """What is set aside of the budget, once there is room for it. Raises BudgetError."""
        while (held := self.shared.budget.hold(need)) is None:
            await self._look(_LOOK_SECONDS)
        self._open += 1
        return held

    async def _look(self, seconds: float) -> None:
        """Until a call has ended, or so many seconds are over."""
        self._ended.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(None if seconds == inf else seconds):
                await self._ended.wait()


def now() -> float:
    """The moment, in seconds of the running event loop."""
    return asyncio.get_running_loop().time()


@dataclass(slots=True)
class Row:
    """A prompt on its way."""

    messages: Messages
    dropped: Dropped
    tries: Tries
    calls: int = 0
    """That were sent for it."""
    off_label: Answer | None = None
    """The first answer, if it was none of the labels."""
    has_slot: bool = True
    is_under_way: bool = False
    """Whether a call for it is."""
    has_lost: bool = False
    """Whether a reply to one was lost."""

    @property
    def is_billed(self) -> bool:
        """Whether a call for it has been answered, or may yet be."""
        return self.is_under_way or self.has_lost or self.off_label is not None

    def with_costs(self, answer: Answer) -> Answer:
        """An answer with what the first one took."""
        return answer if self.off_label is None else answer.with_cost_of(self.off_label)


@dataclass(slots=True)
class RequestDispatcher:
    """The prompts of one query stage.

    At most `max_concurrency` requests are under way, each prompt's first in the order given. What
    waits for another try does not count. Time is that of the running event loop. on_answer: told of
    what has become of each prompt, before anything else is done with it; also of calls that are
    under way when the stage is stopped.
    """

    prompts: Sequence[Prompt]
    codec: RequestCodec
    policy: FailurePolicy
    shared: SharedState
    config: ProviderConfig
    on_answer: OnAnswer
    gate: RequestGate = field(init=False)
    _slots: asyncio.Semaphore = field(init=False)
    _end: float = inf
    _rows: dict[Any, Row] = field(default_factory=dict)
    """Those that are open, by their task."""
    _has_failed: bool = False

    def __post_init__(self) -> None:
        self.gate = RequestGate(self.codec, self.shared, self.policy)
        self._slots = asyncio.Semaphore(self.config.max_concurrency)

    async def run(self) -> None:
        """Send all. Raises FailFastError, ModelError and BudgetError, alone or in a group."""
        if self.config.total_timeout is not None:
            self._end = now() + self.config.total_timeout
        async with asyncio.TaskGroup() as tasks, self._stopping_others():
            for index, prompt in enumerate(self.prompts):
                await self._slot()
                self.policy.begin(index)
                tasks.create_task(self._serve(index, prompt))
        self.policy.finish()

    async def _slot(self) -> None:
        """Wait until another prompt may be begun."""
        while True:
            await self.policy.wait_for_prompts()
            await self._slots.acquire()
            if self._has_failed:  # none may, and the stage is about to end
                await asyncio.Event().wait()
            if self.policy.is_open_to_prompts:  # else closed while all slots were taken
                return
            self._slots.release()

    @asynccontextmanager
    async def _stopping_others(self) -> AsyncIterator[None]:
        """A block whose failure ends the stage, once calls under way had a moment to end."""
        try:
            yield
        except Exception:
            if self._has_failed:  # one reason is enough
                return
            self._has_failed = True
            self._rows.pop(asyncio.current_task(), None)
            under_way = [task for task, row in self._rows.items() if row.is_under_way]
            for task in self._rows.keys() - set(under_way):
                task.cancel()
            if under_way:
                await asyncio.wait(under_way, timeout=_LAST_SECONDS)
            raise

    async def _serve(self, index: int, prompt: Prompt) -> None:
        """One prompt, which has a slot."""
        try:
            messages = to_messages(prompt)
        except RequestError as error:
            self._slots.release()
            self._conclude(
                index, no_answer(str(error), 0), RequestFailure("", str(error), "prompt")
            )
            return
        if self._has_failed:
            return
        row = Row(messages, self.codec.dropped, Tries(index, self.policy.answered))
        self._rows[asyncio.current_task()] = row
        async with self._stopping_others():
            try:
                answer, failure = await self._in_time(row)
            except BaseException:  # stopped by others or by itself
                if row.is_billed:
                    self.on_answer(index, row.with_costs(no_answer(_STOPPED, row.calls)))
                raise
            finally:
                if row.has_slot:
                    self._slots.release()
            if answer.error is not None:
                self.shared.counter.add(failures=1)
            self._conclude(index, row.with_costs(answer), failure)
            del self._rows[asyncio.current_task()]

    def _conclude(self, index: int, answer: Answer, failure: RequestFailure | None) -> None:
        self.on_answer(index, answer)
        self.policy.end(index, answer, failure)

    async def _in_time(self, row: Row) -> Outcome:
        deadline = inf if self.config.deadline is None else now() + self.config.deadline
        end = min(deadline, self._end)
        if now() < end:
            try:
                async with asyncio.timeout_at(None if end == inf else end):
                    return await self._until_answered(row)
            except TimeoutError:
                pass
        name, seconds = (
            ("deadline", self.config.deadline)
            if deadline < self._end
            else ("total_timeout", self.config.total_timeout)
        )
        said = f"No answer within {seconds:g} seconds. Raise {name}, or ask less at once."
        return no_answer(said, row.calls), RequestFailure(name, said)

    async def _until_answered(self, row: Row) -> Outcome:
        is_sent_again = False
        while True:
            ticket = await self.gate.enter(row.messages, row.dropped, is_ahead=is_sent_again)
            self.shared.counter.add(calls=1, retries=row.calls > 0)
            row.calls += 1
            row.is_under_way = True
            try:
                raw = await self.codec.client.send(ticket.content)
                reply = raw.read(self.codec.client.wire)
            except ProviderError as error:
                row.is_under_way = False
                row.has_lost |= error.may_be_billed
                spared = self.codec.spared(error, ticket.dropped)
                is_sent_again = spared != ticket.dropped
                self.gate.failed(ticket, error, is_sent_again=is_sent_again)
                if self._has_failed:
                    raise asyncio.CancelledError from error
                if is_sent_again:
                    row.dropped = spared
                    continue
                wait = self._wait_for_next(error, row)
                if wait is None:
                    return self.codec.failed(error, row.calls)
                await self._pause(row, wait)
                continue
            except BaseException:
                self.gate.cancelled(ticket)
                raise
            row.is_under_way = False
            self.gate.answered(ticket, reply.usage, raw.headers)
            self.shared.counter.check_read(reply.usage, ticket.need, row.messages)
            outcome = self.codec.read(reply, row.calls, ticket.dropped)
            self.codec.learn(ticket.dropped)
            if outcome.off_label and not self._has_failed:
                row.dropped |= {TOLD}
                row.off_label, is_sent_again = outcome.answer, False
                continue
            return outcome.answer, outcome.failure

    async def _pause(self, row: Row, seconds: float) -> None:
        """Wait without a slot."""
        row.has_slot = False
        self._slots.release()
        await asyncio.sleep(seconds)
        await self._slots.acquire()
        row.has_slot = True

    def _wait_for_next(self, error: ProviderError, row: Row) -> float | None:
        """Seconds until a prompt is sent again; None if it is not. Raises ModelError where nothing
        would help, and FailFastError.
        """
        limiter, failure = self.shared.limiter, self.codec.failure(error)
        wait = self.policy.next_try(error, failure, row.tries, limiter.refusals, now())
        self.codec.check(error, is_last=wait is None)
        if error.is_limit:
            told = error.wait if wait is None else wait
            if limiter.refused(min(told or 0.0, TOO_LONG), now()) and wait is not None:
                return 0.0  # the limiter lets nobody through until then
        return wait
