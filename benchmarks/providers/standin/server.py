"""The stand-in: routes, keys, limits, faults and bills."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from benchmarks.providers.standin.batches.routes import route
from benchmarks.providers.standin.batches.store import Batches
from benchmarks.providers.standin.billing import Account
from benchmarks.providers.standin.cache import Reading
from benchmarks.providers.standin.errors import Refused, provider_of
from benchmarks.providers.standin.faults import Faults, Kind
from benchmarks.providers.standin.forms import chat, messages, responses
from benchmarks.providers.standin.forms.asked import Asked, Given, Json, said
from benchmarks.providers.standin.forms.batch import Outcome
from benchmarks.providers.standin.http import Closed, Request, Response
from benchmarks.providers.standin.limits import Limits
from benchmarks.providers.standin.prompt import Sent
from benchmarks.providers.standin.rules import RULES, Provider

FORMS: dict[str, ModuleType] = {
    "/v1/chat/completions": chat,
    "/v1/responses": responses,
    "/v1/messages": messages,
}
_STATUS: dict[Kind, int] = {"429": 429, "500": 500, "503": 503}
REFUSAL = "I cannot help with that."


def yes_or_no(sent: Sent) -> str:
    """Yes or No, always the same for equal prompts."""
    return "Yes" if sent.digest % 2 else "No"


@dataclass(slots=True)
class Standin:
    """A provider of all models in models.toml, for one customer.

    begins, ends: seconds until an answer begins and ends. clock: seconds since the epoch, for
    limits and lifetimes. sleep: waits so many seconds of that clock. asked: the requests that came
    through with a right form, in order. batch_seconds: until a batch ends.
    """

    account: Account = field(default_factory=Account)
    limits: Limits = field(default_factory=Limits)
    faults: Faults = field(default_factory=Faults)
    answer: Callable[[Sent], str] = yes_or_no
    begins: float = 0.0
    ends: float = 0.0
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], Any] = asyncio.sleep
    batch_seconds: float = 60.0
    asked: list[Asked] = field(default_factory=list)
    under_way: int = 0
    peak: int = 0
    _batches: Batches | None = None

    @property
    def batches(self) -> Batches:
        """The batches of this customer."""
        if self._batches is None:
            self._batches = Batches(self._answer_batch, self.clock, self.batch_seconds)
        return self._batches

    async def handle(self, request: Request) -> Response:
        """Answer a request."""
        path = request.path.partition("?")[0]
        provider = provider_of(request)
        self.under_way += 1
        self.peak = max(self.peak, self.under_way)
        try:
            check_key(request, provider)
            if request.method == "POST" and path in FORMS:
                return await self._serve(request, FORMS[path])
            return self._route(request, path)
        except Refused as refused:
            return refused.reply(provider)
        finally:
            self.under_way -= 1

    def _route(self, request: Request, path: str) -> Response:
        if request.method == "GET" and path == "/v1/models":
            data = [{"id": name, "object": "model", "created": 0} for name in RULES]
            return Response({"object": "list", "data": data})
        return route(self.batches, request)

    async def _serve(self, request: Request, form: ModuleType) -> Response:
        asked: Asked = form.read(request.body)
        self.asked.append(asked)
        provider = RULES[asked.model].provider
        fault = self.faults.of(asked.sent)
        if fault in _STATUS:
            raise failure(_STATUS[fault], provider)
        reading = self.account.look_up(asked.model, asked.sent, self.clock())
        self.limits.admit(provider, reading, asked.most, self.clock())
        await self.sleep(self.begins)
        reading.begin(self.clock())
        await self.sleep(self.ends - self.begins)
        given = self._give(asked, reading, fault, len(self.asked), self.clock())
        headers = self.limits.headers(provider, self.clock())
        headers["request-id"] = f"req_{given.number}"
        if fault == "hang":
            await request.left()
        if fault in ("hang", "reset"):
            raise Closed(is_reset=fault == "reset")
        if asked.streams:
            events = _broken(list(_written(form.events(asked, given))), fault)
            return Response(headers=headers, events=events)
        body = _body(form.reply(asked, given), fault)
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

    def _answer_batch(self, form: ModuleType, bodies: Sequence[Json], now: float) -> list[Outcome]:
        """Requests that are sent together: none of them reads what another one writes."""
        read = [_read(form, body) for body in bodies]
        looked = [
            (
                one,
                None
                if isinstance(one, Refused)
                else self.account.look_up(one.model, one.sent, now),
            )
            for one in read
        ]
        return [self._outcome(form, *each, now) for each in looked]

    def _outcome(
        self, form: ModuleType, asked: Asked | Refused, reading: Reading | None, now: float
    ) -> Outcome:
        if isinstance(asked, Refused):
            return asked
        assert reading is not None
        fault = self.faults.of(asked.sent)
        if fault is not None and fault != "refusal":
            return failure(500, "openai")
        reading.begin(now)
        reply: Json = form.reply(asked, self._give(asked, reading, fault, None, now))
        return reply


def _read(form: ModuleType, body: Json) -> Asked | Refused:
    try:
        asked: Asked = form.read(json.dumps(body).encode())
    except Refused as refused:
        return refused
    return asked


def check_key(request: Request, provider: Provider) -> None:
    """Raises Refused for a request without a key, or of no version."""
    if provider == "anthropic":
        if "anthropic-version" not in request.headers:
            raise Refused(400, "anthropic-version: header is required")
        return
    key = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
    if not key:
        said = "You didn't provide an API key."
        raise Refused(401, said, "invalid_api_key")


def failure(status: int, provider: Provider) -> Refused:
    """A fault with a status."""
    if status == 429:
        said = "Rate limit reached. Please try again in 1s."
        return Refused(429, said, "rate_limit_exceeded", headers={"retry-after": "1"})
    if provider == "anthropic" and status == 503:
        return Refused(529, "Overloaded")
    return Refused(status, "The server had an error while processing your request.")


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
