"""What a request waits for before it is sent, and what is known once it has ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any

from relquery.backends.provider.form.messages import Messages
from relquery.backends.provider.form.reply import Usage
from relquery.backends.provider.form.trouble import TroubleError
from relquery.backends.provider.sending.asking import Asking, Without
from relquery.backends.provider.sending.budget import Purse
from relquery.backends.provider.sending.circuit import Circuit
from relquery.backends.provider.sending.counting import Counting
from relquery.backends.provider.sending.headers import Headers
from relquery.backends.provider.sending.limiter import Limiter
from relquery.backends.provider.sending.needs import Need

_LOG = logging.getLogger("relquery")
_LONG_SECONDS = 20.0
"""A wait for a limit that the user is told of."""
_SCOUT_SECONDS = 1.0
"""How long others wait for the first request to a server of which nothing is known: one that
refuses a setting says so before it computes."""
_LOOK_SECONDS = 0.25  # between looks at what other threads change


@dataclass(slots=True)
class Shared:
    """What all that ask one server with one budget share.

    has_told: whether the user was told of a limit that holds calls up for long.
    """

    limiter: Limiter
    purse: Purse
    counting: Counting
    has_told: bool = False


@dataclass(slots=True)
class Ticket:
    """A request that may be sent. held: of the budget; reserved: of the limit of tokens."""

    body: dict[str, Any]
    without: Without
    need: Need
    held: float
    reserved: float
    is_scout: bool


@dataclass(slots=True)
class Door:
    """Requests pass one behind the other, so that they go in their order.

    Time is that of the running event loop.
    """

    asking: Asking
    shared: Shared
    circuit: Circuit
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _ended: asyncio.Event = field(default_factory=asyncio.Event)
    _scouting_since: float | None = None
    _open: int = 0
    _has_learnt: bool = False

    async def enter(self, messages: Messages, without: Without, *, is_ahead: bool) -> Ticket:
        """Wait until a request may be sent.

        without: settings that this one does without. is_ahead: not behind others, which may wait
        for what it learns.
        """
        async with nullcontext() if is_ahead else self._lock:
            settings, body = self._request(messages, without)
            is_scout = is_ahead and self._scouting_since is not None
            if not is_ahead and not self.asking.is_known(body):
                is_scout = await self._scout(messages, without)
                settings, body = self._request(messages, without)
            while (seconds := self.circuit.wait(now())) > 0 and not is_ahead:
                await self._look(seconds)
            need = Need.of(body)
            async with self._held(need) as held:
                while True:
                    seconds, reserved = self.shared.limiter.reserve(need, now())
                    if seconds <= 0:
                        break
                    self._tell(seconds)
                    await asyncio.sleep(min(seconds, _LOOK_SECONDS))
            self.circuit.begin()
            return Ticket(body, settings, need, held, reserved, is_scout)

    @contextmanager
    def under_way(self, ticket: Ticket) -> Iterator[None]:
        """A block that sends a request. One that is cancelled is settled."""
        try:
            yield
        except TroubleError:
            raise
        except BaseException:  # cancelled: the server may have answered
            self.settle(ticket, None, {}, is_answered=False)
            raise

    def settle(
        self,
        ticket: Ticket,
        usage: Usage | None,
        headers: Headers,
        *,
        is_answered: bool = True,
    ) -> None:
        """A request has ended, and may have cost something."""
        shared, moment = self.shared, now()
        self.circuit.end()
        shared.purse.settle(ticket.held, usage, ticket.need)
        self._open -= 1
        self._has_learnt |= usage is not None and usage.prompt > 0 and usage.tells_output
        shared.limiter.settle(ticket.need, ticket.reserved, usage, headers, moment)
        if is_answered:
            self.asking.reached = True
            self.circuit.succeed()
            shared.limiter.answered(moment)
        if usage is not None:
            shared.counting.used(usage)
        if ticket.is_scout:
            self._scouting_since = None
        self._ended.set()

    def conclude(self, ticket: Ticket, *, was_read: bool) -> None:
        """A request ends without another in its place. was_read: whether the server has read it."""
        if was_read:
            self.asking.note(ticket.body)
        if ticket.is_scout:
            self._scouting_since = None

    def note(self, trouble: TroubleError, ticket: Ticket, *, is_answer: bool) -> None:
        """A request has brought no reply.

        is_answer: whether one that the server refuses for good is all that comes of it. One that
        is sent again without a setting is not: the server may fail whatever it is asked.
        """
        shared, moment = self.shared, now()
        self.circuit.end()
        self._open -= 1
        if trouble.may_be_billed:
            shared.purse.settle(ticket.held, None)
        else:
            shared.purse.refused(ticket.held)
        shared.limiter.settle(ticket.need, ticket.reserved, None, trouble.headers, moment)
        self.asking.reached |= trouble.status is not None
        if trouble.status is not None and not trouble.is_passing:
            if is_answer:
                self.circuit.succeed()
            shared.limiter.answered(moment)
        self._ended.set()

    def _request(self, messages: Messages, without: Without) -> tuple[Without, dict[str, Any]]:
        """A request as the server takes it, as far as is known, and what it does without."""
        without = without | self.asking.without
        return without, self.asking.body(messages, without)

    async def _scout(self, messages: Messages, without: Without) -> bool:
        """Wait for what the first request of a kind tells; whether this one is the first."""
        while not self.asking.is_known(self._request(messages, without)[1]):
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
        purse = self.shared.purse
        # The first call of a stage goes alone: its reply tells what calls take.
        while (self._open and not self._has_learnt and purse.is_of_tokens) or (
            held := purse.hold(need)
        ) is None:
            await self._look(_LOOK_SECONDS)
        self._open += 1
        try:
            yield held
        except BaseException:
            purse.give_back(held)
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
