"""Requests to one server over HTTP, and what went wrong where no reply came."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import InitVar, dataclass, field
from itertools import cycle
from random import Random
from typing import Any

import httpx2

from relquery.backends.provider.failure_policy import TOO_LONG, backoff
from relquery.backends.provider.providers import Access
from relquery.backends.wires.errors import ProviderError, short, status_error
from relquery.backends.wires.reply import Reply
from relquery.backends.wires.wire import GARBLED, Wire
from relquery.errors import ModelError

_JSON = {"Content-Type": "application/json"}
_CONNECTIONS = 4  # of a pool, on average


@dataclass(frozen=True, slots=True)
class RawReply:
    """A reply as it came. headers: by their names in small letters."""

    text: str
    headers: Mapping[str, str]

    def read(self, wire: Wire) -> Reply:
        """What it says. Raises ProviderError if it is no reply of this API."""
        if (reply := wire.read(self.text)) is not None:
            return reply
        error = ProviderError.garbled(wire.what, self.text)
        try:
            body = json.loads(self.text)
            status = body["error"]["code"]
            if isinstance(status, int) and 400 <= status < 600:  # of the server behind this one
                error = status_error(status, body)
        except GARBLED:
            pass
        error.headers = self.headers
        raise error


@dataclass(slots=True)
class ProviderClient:
    """Open connections to one server. All methods raise ProviderError, and ModelError without a
    key.
    """

    access: Access
    wire: Wire
    timeout: float
    """Seconds."""
    max_retries: int = 0
    """Of what `call` sends."""
    at_once: InitVar[int] = 1
    """Requests under way."""
    _pools: Iterator[httpx2.AsyncClient] = field(init=False)
    _open: list[httpx2.AsyncClient] = field(init=False)
    _prompts: httpx2.URL = field(init=False)
    """Where they go."""

    def __post_init__(self, at_once: int) -> None:
        self._prompts = httpx2.URL(self.url.rstrip("/") + self.wire.path)
        # A pool walks over all its connections at each request, so several small ones are faster.
        self._open = [self.access.client() for _ in range(0, at_once, _CONNECTIONS)]
        self._pools = cycle(self._open)

    @property
    def url(self) -> str:
        """The server's address."""
        return str(self.access.url)

    async def send(self, body: bytes) -> RawReply:
        """A reply to a prompt, which is sent once. body: JSON."""
        reply = await self._sent(
            "POST", self._prompts, within=self.timeout, content=body, headers=_JSON
        )
        try:
            text = reply.content.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise ProviderError.garbled(self.wire.what, reply.text) from None
        return RawReply(text, dict(reply.headers))

    async def call(
        self, method: str, path: str, *, is_single: bool = False, **more: Any
    ) -> httpx2.Response:
        """A reply to a request that is sent again where it fails in passing.

        is_single: whether it must not be taken twice. It is sent again after refusals by a limit
        alone. more: arguments of a request of httpx2, and `within`, the seconds of one try.
        """
        tries = 0
        while True:
            try:
                return await self._sent(method, path, **more)
            except ProviderError as error:
                tries, wait = tries + 1, error.wait
                may_pass = error.is_limit if is_single else error.is_passing
                if tries > self.max_retries or not may_pass or (wait or 0.0) > TOO_LONG:
                    raise
                await asyncio.sleep(backoff(tries, wait, Random()))

    async def aclose(self) -> None:
        """Close the connections."""
        for pool in self._open:
            await pool.aclose()

    async def _sent(
        self,
        method: str,
        url: httpx2.URL | str,
        *,
        stream: bool = False,
        within: float | None = None,
        **more: Any,
    ) -> httpx2.Response:
        """A reply; stream: whose body has yet to come. url: or a path of the server. within:
        seconds for the whole of it; httpx2's timeout begins anew with each byte.
        """
        try:
            async with asyncio.timeout(within):
                if (token := self.access.token) is not None:
                    bearer = {"Authorization": f"Bearer {await asyncio.to_thread(token)}"}
                    more["headers"] = {**more.get("headers", {}), **bearer}
                pool = next(self._pools)
                reply = await pool.send(pool.build_request(method, url, **more), stream=stream)
                if reply.is_success:
                    return reply
                await reply.aread()
        except ModelError:  # of what gives the key
            raise
        except Exception as error:
            raise http_error(error, self.timeout) from error
        raise _refusal(reply)


def _refusal(reply: httpx2.Response) -> ProviderError:
    body: Any = reply.text.strip()
    with suppress(ValueError, RecursionError):
        body = json.loads(body)
    return status_error(reply.status_code, body, dict(reply.headers), reply.reason_phrase)


def http_error(error: Exception, timeout: float) -> ProviderError:
    """Why a request brought no reply. timeout: seconds that it had."""
    said = short(str(error).strip() or type(error).__name__)  # some say nothing but their name
    lost = f"The connection failed: {said.rstrip('.')}."
    match error:
        case httpx2.ConnectError() | httpx2.ConnectTimeout():
            return ProviderError("connecting", lost)
        case httpx2.TimeoutException() | TimeoutError():
            return ProviderError(
                "late",
                f"No answer within {timeout:g} seconds. Raise timeout, or lower max_concurrency.",
            )
        case httpx2.HTTPError() | OSError():
            return ProviderError("lost", lost)
    return ProviderError("odd", f"The request failed: {error!r}")
