"""Prompts sent to a provider, each until it has an answer or fails for good."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf

from relquery.backends.base import OnAnswer
from relquery.backends.provider.admission import AdmissionController, SharedState, Ticket, now
from relquery.backends.provider.client import RawReply
from relquery.backends.provider.config import ProviderConfig
from relquery.backends.provider.errors import Failure
from relquery.backends.provider.exchange import Dropped, Exchange, Outcome
from relquery.backends.provider.failure_policy import TOO_LONG, FailurePolicy, Tries
from relquery.backends.wires.errors import ProviderError
from relquery.backends.wires.messages import Messages, to_messages
from relquery.backends.wires.reply import no_answer
from relquery.backends.wires.response_format import TOLD
from relquery.errors import RequestError
from relquery.prompt import Answer, Prompt

_STOPPED = "The query was stopped before the answer came, which may be billed."
_LAST_SECONDS = 2.0
"""For which answers that are under way, and so paid for, are waited for once a stage has failed."""


@dataclass(slots=True)
class Row:
    """A prompt on its way."""

    messages: Messages
    dropped: Dropped
    tries: Tries
    end: float = inf
    """When it must have an answer."""
    calls: int = 0
    """That were sent for it."""
    took: float = 0.0
    """Seconds of its replies."""
    off_label: Answer | None = None
    """The first answer, if it was none of the labels."""
    has_slot: bool = True
    is_under_way: bool = False
    """Whether a call for it is."""
    has_lost: bool = False
    """Whether a reply to one was lost."""
    is_last: bool = False
    """Whether the stage has failed while its call was under way."""

    @property
    def is_billed(self) -> bool:
        """Whether a call for it has been answered, or may yet be."""
        return self.is_under_way or self.has_lost or self.off_label is not None

    def with_costs(self, answer: Answer) -> Answer:
        """An answer with what the first one took."""
        return answer if self.off_label is None else answer.with_cost_of(self.off_label)


@dataclass(slots=True)
class CallDispatch:
    """The prompts of one query stage.

    At most `max_concurrency` requests are under way, each prompt's first in the order given. What
    waits for another try does not count. Time is that of the running event loop. heard: told of
    what has become of each prompt, before anything else is done with it; also of calls that are
    under way when the stage is stopped.
    """

    prompts: Sequence[Prompt]
    exchange: Exchange
    policy: FailurePolicy
    shared: SharedState
    config: ProviderConfig
    heard: OnAnswer
    admission: AdmissionController = field(init=False)
    _slots: asyncio.Semaphore = field(init=False)
    _end: float = inf
    _has_failed: bool = False

    def __post_init__(self) -> None:
        self.admission = AdmissionController(self.exchange, self.shared, self.policy)
        self._slots = asyncio.Semaphore(self.config.max_concurrency)

    async def run(self) -> None:
        """Send all. Raises FailFastError, ModelError and BudgetError, alone or in a group."""
        if self.config.total_timeout is not None:
            self._end = now() + self.config.total_timeout
        async with asyncio.TaskGroup() as rows:
            with self._noting_failure():
                for index, prompt in enumerate(self.prompts):
                    await self._slot()
                    self.policy.begin(index)
                    rows.create_task(self._serve(index, prompt))
        self.policy.finish()

    async def _slot(self) -> None:
        """Wait until another prompt may be begun."""
        while True:
            await self.policy.wait_for_prompts()
            await self._slots.acquire()
            if self.policy.is_open_to_prompts:  # else closed while all slots were taken
                return
            self._slots.release()

    @contextmanager
    def _noting_failure(self) -> Iterator[None]:
        """A block whose failure stops all others."""
        try:
            yield
        except Exception:
            self._has_failed = True
            raise

    async def _serve(self, index: int, prompt: Prompt) -> None:
        """One prompt, which has a slot."""
        try:
            messages = to_messages(prompt)
        except RequestError as error:
            self._slots.release()
            self._conclude(index, no_answer(str(error), 0), Failure("", str(error), "prompt"))
            return
        row = Row(messages, self.exchange.dropped, Tries(index, self.policy.answered))
        with self._noting_failure():
            try:
                answer, failure = await self._in_time(row)
            except BaseException:  # stopped by others or by itself
                if row.is_billed:
                    self.heard(index, row.with_costs(no_answer(_STOPPED, row.calls)))
                raise
            finally:
                if row.has_slot:
                    self._slots.release()
            if answer.error is not None:
                self.shared.counter.failed()
            self._conclude(index, row.with_costs(answer), failure)

    def _conclude(self, index: int, answer: Answer, failure: Failure | None) -> None:
        self.heard(index, answer)
        self.policy.end(index, answer, failure)

    async def _in_time(self, row: Row) -> Outcome:
        deadline = inf if self.config.deadline is None else now() + self.config.deadline
        end = row.end = min(deadline, self._end)
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
        return no_answer(said, row.calls), Failure(name, said)

    async def _until_answered(self, row: Row) -> Outcome:
        is_sent_again = False
        while True:
            ticket = await self.admission.enter(row.messages, row.dropped, is_ahead=is_sent_again)
            self.shared.counter.sent(again=row.calls > 0)
            row.calls += 1
            begun = now()
            row.is_under_way = True
            try:
                raw = await self._sent(ticket, row)
                reply = raw.read(self.exchange.client.wire)
            except ProviderError as error:
                row.is_under_way = False
                row.has_lost |= error.may_be_billed
                spared = self.exchange.spared(error, ticket.dropped)
                is_sent_again = spared != ticket.dropped
                self.admission.failed(ticket, error, is_sent_again=is_sent_again)
                if row.is_last:
                    raise asyncio.CancelledError from error
                if is_sent_again:
                    row.dropped = spared
                    continue
                wait = self._wait_for_next(error, row)
                if wait is None:
                    return self.exchange.failed(error, row.calls)
                await self._pause(row, wait)
                continue
            except BaseException:
                self.admission.cancelled(ticket)
                raise
            row.is_under_way = False
            self.admission.answered(ticket, reply.usage, raw.headers)
            self.shared.counter.check_read(reply.usage, ticket.need, row.messages)
            found = self.exchange.read(reply, row.calls, ticket.dropped)
            self.exchange.learn(ticket.dropped)
            row.took += now() - begun
            if found.off_label and not row.is_last:
                row.dropped |= {TOLD}
                row.off_label, is_sent_again = found.answer, False
                continue
            return replace(found.answer, took=row.took), found.failure

    async def _sent(self, ticket: Ticket, row: Row) -> RawReply:
        """What a call brings, for a moment after the stage has failed, too."""
        call = asyncio.ensure_future(self.exchange.client.send(ticket.body))
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            try:
                left = row.end - now()
                if self._has_failed and left > 0:  # else nobody waits for it, or its time is over
                    await asyncio.wait({call}, timeout=min(_LAST_SECONDS, left))
            finally:
                call.cancel()  # unless it has ended
            if not call.done() or call.cancelled():
                raise
            row.is_last = True
            return call.result()

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
        limiter, failure = self.shared.limiter, self.exchange.failure(error)
        wait = self.policy.next_try(error, failure, row.tries, limiter.refusals, now())
        self.exchange.check(error, is_last=wait is None)
        if error.is_limit:
            told = error.wait if wait is None else wait
            if limiter.refused(min(told or 0.0, TOO_LONG), now()) and wait is not None:
                return 0.0  # the limiter lets nobody through until then
        return wait
