"""Prompts sent to a provider, each until it has an answer or fails for good."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from random import Random

from relquery.backends.base import Heard
from relquery.backends.provider.config import ProviderConfig
from relquery.backends.provider.form.failures import Failure
from relquery.backends.provider.form.format import TOLD
from relquery.backends.provider.form.messages import Messages, to_messages
from relquery.backends.provider.form.reply import no_answer
from relquery.backends.provider.form.trouble import TroubleError
from relquery.backends.provider.sending.asking import Asking, Outcome, Without
from relquery.backends.provider.sending.circuit import Circuit
from relquery.backends.provider.sending.door import Door, Shared, Ticket, now
from relquery.backends.provider.sending.headers import retry_after, utc
from relquery.backends.provider.sending.retries import TOO_LONG, backoff
from relquery.backends.provider.sending.trial import Trial
from relquery.backends.provider.wires.wire import Sent
from relquery.errors import RequestError
from relquery.prompt import Answer, Prompt

_STOPPED = "The query was stopped before the answer came, which may be billed."
_LAST_SECONDS = 2.0
"""For which answers that are under way, and so paid for, are waited for once a stage has failed."""


@dataclass(slots=True)
class Row:
    """A prompt on its way. begun: how many calls were answered when it was. calls: sent for it.

    took: seconds of its replies. strayed: the first answer, if it was none of the labels.
    is_under_way: whether a call for it is. has_lost: whether a reply to one was lost. end: when it
    must have an answer. is_last: whether the stage has failed while its call was under way.
    """

    index: int
    messages: Messages
    begun: int
    without: Without
    calls: int = 0
    tries: int = 0
    took: float = 0.0
    strayed: Answer | None = None
    has_slot: bool = True
    is_under_way: bool = False
    has_lost: bool = False
    end: float = inf
    is_last: bool = False

    @property
    def is_billed(self) -> bool:
        """Whether a call for it has been answered, or may yet be."""
        return self.is_under_way or self.has_lost or self.strayed is not None

    def with_costs(self, answer: Answer) -> Answer:
        """An answer with what the first one took."""
        return answer if self.strayed is None else answer.with_cost_of(self.strayed)


@dataclass(slots=True)
class Dispatch:
    """The prompts of one query stage.

    At most `max_concurrency` requests are under way, each prompt's first in the order given. What
    waits for another try does not count. Time is that of the running event loop. heard: told of
    what has become of each prompt, before anything else is done with it; also of calls that are
    under way when the stage is stopped.
    """

    asking: Asking
    trial: Trial
    shared: Shared
    config: ProviderConfig
    heard: Heard
    chance: Random = field(default_factory=Random)
    door: Door = field(init=False)
    _slots: asyncio.Semaphore = field(init=False)
    _end: float = inf
    _has_failed: bool = False

    def __post_init__(self) -> None:
        circuit = Circuit(self.asking.wire.url, self.config.max_retries)
        self.door = Door(self.asking, self.shared, circuit)
        self._slots = asyncio.Semaphore(self.config.max_concurrency)

    async def run(self) -> None:
        """Send all. Raises AllAlikeError, ModelError and BudgetError, alone or in a group."""
        if self.config.total_timeout is not None:
            self._end = now() + self.config.total_timeout
        async with asyncio.TaskGroup() as rows:
            with self._noting_failure():
                await self._begin_all(rows)
        self.trial.over()

    async def _begin_all(self, rows: asyncio.TaskGroup) -> None:
        while True:
            await self.trial.opened()
            await self._slots.acquire()
            if not self.trial.is_open:  # closed while all slots were taken
                self._slots.release()
                continue
            begun = self.trial.begin()
            if begun is None:
                self._slots.release()
                return
            rows.create_task(self._serve(*begun))

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
        row = Row(index, messages, self.door.circuit.answered, self.asking.without)
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
                self.shared.counting.failed()
            self._conclude(index, row.with_costs(answer), failure)

    def _conclude(self, index: int, answer: Answer, failure: Failure | None) -> None:
        self.heard(index, answer)
        self.trial.end(index, answer, failure)

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
        refused = False
        while True:
            ticket = await self.door.enter(row.messages, row.without, is_ahead=refused)
            self.shared.counting.sent(again=row.calls > 0)
            row.calls += 1
            begun = now()
            try:
                row.is_under_way = True
                with self.door.under_way(ticket):
                    sent = await self._sent(ticket, row)
                row.is_under_way = False
            except TroubleError as trouble:
                row.is_under_way = False
                row.has_lost |= trouble.may_be_billed
                spared = self.asking.spared(trouble, ticket.without)
                refused = spared != ticket.without
                self.door.note(trouble, ticket, is_answer=not refused)
                if row.is_last:
                    raise asyncio.CancelledError from trouble
                if refused:
                    row.without = spared
                    continue
                was_read = trouble.status is not None and not trouble.is_passing
                self.door.conclude(ticket, was_read=was_read)
                wait = self._wait_for_next(trouble, row)
                if wait is None:
                    return self.asking.failed(trouble, row.calls)
                await self._pause(row, wait)
            else:
                found = self.asking.read(sent.text, row.calls, ticket.without)
                self.door.settle(ticket, found.usage, sent.headers)
                self.asking.learn(ticket.without)
                self.door.conclude(ticket, was_read=True)
                row.took += now() - begun
                if found.strays and not row.is_last:
                    row.without |= {TOLD}
                    row.strayed = found.answer
                    continue
                return replace(found.answer, took=row.took), found.failure

    async def _sent(self, ticket: Ticket, row: Row) -> Sent:
        """What a call brings, for a moment after the stage has failed, too."""
        call = asyncio.ensure_future(self.asking.wire.send(ticket.body))
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

    def _wait_for_next(self, trouble: TroubleError, row: Row) -> float | None:
        """Seconds until a prompt is sent again; None if it is not. Raises ModelError where nothing
        would help, and AllAlikeError.
        """
        row.tries += 1
        told = retry_after(trouble.headers, utc())
        is_last = row.tries > self.config.max_retries or not trouble.is_passing
        is_last |= told is not None and told > TOO_LONG
        self.asking.check(trouble, is_last=is_last)
        wait = backoff(row.tries, told, self.chance)
        if trouble.is_limit:
            limiter = self.shared.limiter
            if told is None and limiter.refusals:
                wait = backoff(limiter.refusals + 1, None, self.chance)
            if limiter.refused(min(wait, TOO_LONG), now()):
                wait = 0.0  # the limiter lets nobody through until then
        elif trouble.is_passing:
            self.door.circuit.fail(row.index, row.begun, self.asking.why(trouble), wait, now())
        return None if is_last else wait
