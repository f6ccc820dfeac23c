"""What a request waits for before it is sent, and what is known once it has ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any

from relquery.backends.provider.budget import Budget, CallCounter
from relquery.backends.provider.exchange import Dropped, Exchange
from relquery.backends.provider.failure_policy import FailurePolicy
from relquery.backends.provider.limiter import Limiter, Need
from relquery.backends.wires.errors import ProviderError
from relquery.backends.wires.messages import Messages
from relquery.backends.wires.rate_limits import Headers
from relquery.backends.wires.reply import Usage

_LOG = logging.getLogger("relquery")
_LONG_SECONDS = 20.0
"""A wait for a limit that the user is told of."""
_SCOUT_SECONDS = 1.0
"""How long others wait for the first request to a server of which nothing is known: one that
refuses a setting says so before it computes."""
_LOOK_SECONDS = 0.25  # between looks at what other threads change


@dataclass(slots=True)
class SharedState:
    """What all that ask one server with one budget share.

    has_told: whether the user was told of a limit that holds calls up for long.
    """

    limiter: Limiter
    budget: Budget
    counter: CallCounter
    has_told: bool = False


@dataclass(slots=True)
class Ticket:
    """A request that may be sent. held: of the budget; reserved: of the limit of tokens."""

    body: dict[str, Any]
    dropped: Dropped
    need: Need
    held: float
    reserved: float
    is_scout: bool


@dataclass(slots=True)
class AdmissionController:
    """Requests pass one behind the other, so that they go in their order.

    Time is that of the running event loop.
    """

    exchange: Exchange
    shared: SharedState
    policy: FailurePolicy
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _ended: asyncio.Event = field(default_factory=asyncio.Event)
    _scouting_since: float | None = None
    _open: int = 0
    _has_learnt: bool = False

    async def enter(self, messages: Messages, dropped: Dropped, *, is_ahead: bool) -> Ticket:
        """Wait until a request may be sent.

        dropped: settings that this one does without. is_ahead: not behind others, which may wait
        for what it learns.
        """
        async with nullcontext() if is_ahead else self._lock:
            settings, body = self._request(messages, dropped)
            is_scout = is_ahead and self._scouting_since is not None
            if not is_ahead and not self.exchange.is_known(body):
                is_scout = await self._scout(messages, dropped)
                settings, body = self._request(messages, dropped)
            while (seconds := self.policy.wait(now())) > 0 and not is_ahead:
                await self._look(seconds)
            need = Need.of(body)
            async with self._held(need) as held:
                while True:
                    seconds, reserved = self.shared.limiter.reserve(need, now())
                    if seconds <= 0:
                        break
                    self._tell(seconds)
                    await asyncio.sleep(min(seconds, _LOOK_SECONDS))
            self.policy.call_begins()
            return Ticket(body, settings, need, held, reserved, is_scout)

    def answered(self, ticket: Ticket, usage: Usage, headers: Headers) -> None:
        """A request has brought a reply."""
        self.shared.budget.settle(ticket.held, usage, ticket.need)
        self._has_learnt |= usage.prompt > 0 and usage.tells_output
        self._end(ticket, usage, headers)
        self.exchange.reached = True
        self._was_read(ticket)
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
        self._end(ticket, None, error.headers, is_over=not is_sent_again)
        self.exchange.reached |= error.status is not None or error.kind == "garbled"
        if error.is_refusal:
            self.shared.limiter.answered(now())
            if not is_sent_again:
                self._was_read(ticket)

    def cancelled(self, ticket: Ticket) -> None:
        """A request was given up: the server may have answered."""
        self.shared.budget.settle(ticket.held, None)
        self._end(ticket, None, {})

    def _end(
        self, ticket: Ticket, usage: Usage | None, headers: Headers, *, is_over: bool = True
    ) -> None:
        self._open -= 1
        self.policy.call_ends()
        self.shared.limiter.settle(ticket.need, ticket.reserved, usage, headers, now())
        if is_over and ticket.is_scout:
            self._scouting_since = None
        self._ended.set()

    def _was_read(self, ticket: Ticket) -> None:
        self.policy.call_answered()
        self.exchange.note_taken(ticket.body)

    def _request(self, messages: Messages, dropped: Dropped) -> tuple[Dropped, dict[str, Any]]:
        """A request as the server takes it, as far as is known, and what it does without."""
        dropped = dropped | self.exchange.dropped
        return dropped, self.exchange.body(messages, dropped)

    async def _scout(self, messages: Messages, dropped: Dropped) -> bool:
        """Wait for what the first request of a kind tells; whether this one is the first."""
        while not self.exchange.is_known(self._request(messages, dropped)[1]):
            if self._scouting_since is None:
                self._scouting_since = now()
                return True
            left = self._scouting_since + _SCOUT_SECONDS - now()
            if left <= 0:
                break
            await self._look(left)
        return False

    def _tell(self, seconds: float) -> None:
        """Say, once, that a limit holds calls up for long."""
        if seconds > _LONG_SECONDS and not self.shared.has_told:
            self.shared.has_told = True
            _LOG.warning(
                "%s, so the next request is sent in %.0f seconds. Raise rpm or tpm (--rpm, --tpm) "
                "if the provider allows more.", self.shared.limiter.reason(now()), seconds,
            )  # fmt: skip

    @asynccontextmanager
    async def _held(self, need: Need) -> AsyncIterator[float]:
        """What is set aside of the budget, given back if the block fails."""
        budget = self.shared.budget
        # The first call of a stage goes alone: its reply tells what calls take.
        while (self._open and not self._has_learnt and budget.is_of_tokens) or (
            held := budget.hold(need)
        ) is None:
            await self._look(_LOOK_SECONDS)
        self._open += 1
        try:
            yield held
        except BaseException:
            budget.give_back(held)
            self._open -= 1
            raise

    async def _look(self, seconds: float) -> None:
        """Until a call has ended, or so many seconds are over."""
        self._ended.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(None if seconds == inf else seconds):
                await self._ended.wait()


def now() -> float:
    """The moment, in seconds of the running event loop."""
    return asyncio.get_running_loop().time()
