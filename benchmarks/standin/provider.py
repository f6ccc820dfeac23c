"""A provider that reads requests strictly, and bills what its model answers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

from benchmarks.standin.batches import Batches, Outcome
from benchmarks.standin.billing import Account
from benchmarks.standin.cache import Reading
from benchmarks.standin.errors import Faults, Kind, Refused, provider_of
from benchmarks.standin.http import Closed, Json, Request, Response
from benchmarks.standin.limits import Limits
from benchmarks.standin.prompt import Sent
from benchmarks.standin.rules import RULES
from benchmarks.standin.server import CHAT, MESSAGES, RESPONSES, Standin, models
from benchmarks.standin.wires import anthropic, openai_chat, openai_responses
from benchmarks.standin.wires.asked import Asked, Given, said

WIRES: dict[str, ModuleType] = {
    CHAT: openai_chat,
    RESPONSES: openai_responses,
    MESSAGES: anthropic,
}
SORRY = "The server had an error while processing your request."
WAIT = "Rate limit reached. Please try again in 1s."
FAILED: dict[Kind | None, Refused] = {
    "429": Refused(429, WAIT, "rate_limit_exceeded", retry_after="1"),
    "500": Refused(500, SORRY),
    "503": Refused(503, SORRY),
}
"""What is answered where a fault is a status."""
OVERLOADED = Refused(529, "Overloaded")
"""Anthropic's 503."""
REFUSAL = "I cannot help with that."


def yes_or_no(sent: Sent) -> str:
    """Yes or No, always the same for equal prompts."""
    return "Yes" if sent.digest % 2 else "No"


class Provider(Standin):
    """A provider of all models in models.toml, for one customer.

    begins, ends: seconds until an answer begins and ends. clock: seconds since the epoch, for
    limits and lifetimes. batch_seconds: until a batch ends.
    """

    def __init__(
        self,
        account: Account | None = None,
        limits: Limits | None = None,
        faults: Faults | None = None,
        answer: Callable[[Sent], str] = yes_or_no,
        begins: float = 0.0,
        ends: float = 0.0,
        clock: Callable[[], float] = time.time,
        batch_seconds: float = 60.0,
    ) -> None:
        super().__init__()
        self.account = account or Account()
        self.limits, self.faults = limits or Limits(), faults or Faults()
        self.answer, self.begins, self.ends = answer, begins, ends
        self.clock = clock
        self.sleep: Callable[[float], Any] = asyncio.sleep
        """Waits so many seconds of that clock."""
        self.batches = Batches(self._answer_batch, clock, batch_seconds)
        self.prompts: list[Sent] = []
        """Those of the requests that came through with a right form, in order."""

    async def reply(self, request: Request) -> Response:
        """What the model answers, or what is known of models, files and batches."""
        check_key(request)
        if request.method == "POST" and request.route in WIRES:
            return await self._serve(request, WIRES[request.route])
        if request.method == "GET" and request.route == "/v1/models":
            return models({name: rules.provider for name, rules in RULES.items()})
        return await self.batches.reply(request)

    async def _serve(self, request: Request, wire: ModuleType) -> Response:
        asked: Asked = wire.read(request.body)
        self.prompts.append(asked.sent)
        provider, number = RULES[asked.model].provider, len(self.prompts)
        fault = self.faults.of(asked.sent)
        if fault in FAILED:
            refused = FAILED[fault] if (fault, provider) != ("503", "anthropic") else OVERLOADED
            return refused.reply(provider)
        reading = self.account.look_up(asked.model, asked.sent, self.clock())
        self.limits.admit(provider, reading, asked.most, self.clock())
        await self.sleep(self.begins)
        reading.begin(self.clock())
        await self.sleep(self.ends - self.begins)
        given = self._give(asked, reading, fault, number, self.clock())
        headers = self.limits.headers(provider, self.clock()) | {"request-id": f"req_{number}"}
        if fault == "hang":
            await self.wait_until_left(request)
        if fault == "reset":
            raise Closed(is_reset=True)
        if asked.streams:
            events = _broken(list(_written(wire.events(asked, given))), fault)
            return Response(headers=headers, events=events)
        body = _body(wire.reply(asked, given), fault)
        return Response(body, headers=headers, is_cut=fault == "cut")

    def _give(
        self, asked: Asked, reading: Reading, fault: Kind | None, number: int | None, now: float
    ) -> Given:
        """The answer to a request, billed. number: of a live request; None for one in a batch."""
        text, cut = said(asked, self.answer(asked.sent))
        refused = fault == "refusal"
        text = REFUSAL if refused else text
        answered = self.account.bill(asked.model, reading, text, in_batch=number is None)
        number = self.account.totals.requests if number is None else number
        return Given(text, cut and not refused, reading, answered, number, int(now), refused)

    def _answer_batch(
        self, wire: ModuleType, bodies: Sequence[Json], now: float
    ) -> Sequence[Outcome]:
        """Requests that are sent together: none of them reads what another one writes."""
        looked = [self._look_up(wire, body, now) for body in bodies]
        return [
            each if isinstance(each, Refused) else self._outcome(wire, *each, now)
            for each in looked
        ]

    def _look_up(self, wire: ModuleType, body: Json, now: float) -> tuple[Asked, Reading] | Refused:
        try:
            asked: Asked = wire.read(json.dumps(body).encode())
        except Refused as refused:
            return refused
        return asked, self.account.look_up(asked.model, asked.sent, now)

    def _outcome(self, wire: ModuleType, asked: Asked, reading: Reading, now: float) -> Outcome:
        fault = self.faults.of(asked.sent)
        if fault is not None and fault != "refusal":
            return FAILED["500"]
        reading.begin(now)
        reply: Json = wire.reply(asked, self._give(asked, reading, fault, None, now))
        return reply


def check_key(request: Request) -> None:
    """Raises Refused for a request without a key, or of no version."""
    if provider_of(request) == "anthropic":
        if "anthropic-version" not in request.headers:
            raise Refused(400, "anthropic-version: header is required")
    elif not request.headers.get("authorization", "").removeprefix("Bearer ").strip():
        raise Refused(401, "You didn't provide an API key.", "invalid_api_key")


def _written(events: Iterator[tuple[str | None, Any]]) -> Iterator[str]:
    for name, data in events:
        head = "" if name is None else f"event: {name}\n"
        text = data if isinstance(data, str) else json.dumps(data)
        yield f"{head}data: {text}\n\n"


async def _broken(events: list[str], fault: Kind | None) -> AsyncIterator[str]:
    if fault == "garbage":
        events = ["data: <html>\n\n"]
    elif fault == "wrong types":
        events = ['data: {"choices": 7, "type": 7}\n\n']
    for event in events[: len(events) // 2 if fault == "cut" else None]:
        yield event
    if fault == "cut":
        raise Closed


def _body(reply: Json, fault: Kind | None) -> Json | str:
    if fault == "garbage":
        return "<html><body>It works!</body></html>"
    if fault == "wrong types":
        return {key: [each] if isinstance(each, str) else str(each) for key, each in reply.items()}
    return reply
