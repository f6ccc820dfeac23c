"""The stand-in: routes, keys, limits, faults and bills."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from benchmarks.providers.standin.batches.routes import route
from benchmarks.providers.standin.batches.store import Batches
from benchmarks.providers.standin.billing import Account
from benchmarks.providers.standin.errors import Refused
from benchmarks.providers.standin.faults import Faults, Kind
from benchmarks.providers.standin.forms import chat, messages, responses
from benchmarks.providers.standin.forms.asked import Asked, Given, said
from benchmarks.providers.standin.http import End, Request, Response
from benchmarks.providers.standin.limits import Limits
from benchmarks.providers.standin.prompt import Sent
from benchmarks.providers.standin.rules import RULES, Provider

FORMS: dict[str, ModuleType] = {
    "/v1/chat/completions": chat,
    "/v1/responses": responses,
    "/v1/messages": messages,
}
_STATUS: dict[Kind, int] = {"429": 429, "500": 500, "503": 503}
_ENDS: dict[Kind, End] = {"hang": "hang", "reset": "reset", "cut": "cut"}
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
            self._batches = Batches(
                self.account, self.faults, self.answer, self.clock, self.batch_seconds
            )
        return self._batches

    async def handle(self, request: Request) -> Response:
        """Answer a request."""
        path = request.path.partition("?")[0]
        provider: Provider = "anthropic" if "x-api-key" in request.headers else "openai"
        self.under_way += 1
        self.peak = max(self.peak, self.under_way)
        try:
            check_key(request, provider)
            if request.method == "POST" and path in FORMS:
                return await self._serve(request.body, FORMS[path])
            return self._route(request, path)
        except Refused as refused:
            body = refused.body(provider)
            return Response(body, refused.status, refused.headers)
        finally:
            self.under_way -= 1

    def _route(self, request: Request, path: str) -> Response:
        if request.method == "GET" and path == "/v1/models":
            data = [{"id": name, "object": "model", "created": 0} for name in RULES]
            return Response(json.dumps({"object": "list", "data": data}).encode())
        return route(self.batches, request)

    async def _serve(self, body: bytes, form: ModuleType) -> Response:
        asked: Asked = form.read(body)
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
        text, cut = said(asked, self.answer(asked.sent))
        refused = fault == "refusal"
        text = REFUSAL if refused else text
        answered = self.account.bill(asked.model, reading, text)
        number, now = len(self.asked), int(self.clock())
        given = Given(text, cut and not refused, reading, answered, number, now, refused)
        headers = self.limits.headers(provider, self.clock()) | {"request-id": f"req_{number}"}
        end = _ENDS.get(fault, "whole") if fault else "whole"
        if asked.streams:
            events = tuple(_written(form.events(asked, given)))
            return Response(headers=headers, events=_broken(events, fault), end=end)
        reply = form.reply(asked, given)
        return Response(_body(reply, fault), headers=headers, end=end)


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


def _written(events: Iterator[tuple[str | None, Any]]) -> Iterator[bytes]:
    for name, data in events:
        head = "" if name is None else f"event: {name}\n"
        text = data if isinstance(data, str) else json.dumps(data)
        yield f"{head}data: {text}\n\n".encode()


def _broken(events: tuple[bytes, ...], fault: Kind | None) -> tuple[bytes, ...]:
    if fault == "garbage":
        return (b"data: <html>\n\n",)
    return (b'data: {"choices": 7, "type": 7}\n\n',) if fault == "wrong types" else events


def _body(reply: dict[str, Any], fault: Kind | None) -> bytes:
    if fault == "garbage":
        return b"<html><body>It works!</body></html>"
    if fault == "wrong types":
        reply = {
            key: [value] if isinstance(value, str) else str(value) for key, value in reply.items()
        }
    return json.dumps(reply).encode()


def _other_type(value: object) -> object:
    return [value] if isinstance(value, str) else str(value)
