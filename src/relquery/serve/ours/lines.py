"""Answers as JSON Lines, while they are made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from relquery.serve.answering import left
from relquery.serve.errors import HttpError, as_http, openai_body
from relquery.serve.ours.values import to_json

NDJSON = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"


class Json(Response):
    """A JSON value that may hold what UTF-8 cannot: halves of characters in answers."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The bytes of a value."""
        return to_json(content)


class Streamed(Response):
    """Bytes as they come. leave: called when the client has gone, or all has been sent.

    failed: the bytes for an error in the midst of it.
    """

    def __init__(
        self,
        chunks: AsyncIterator[bytes],
        leave: Callable[[], None],
        *,
        failed: Callable[[HttpError], bytes] | None = None,
        media_type: str = NDJSON,
    ) -> None:
        super().__init__(media_type=media_type)
        # The length is not known before the end; proxies must not collect it.
        self.raw_headers = [each for each in self.raw_headers if each[0] != b"content-length"]
        self.raw_headers += [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
        self._chunks, self._leave = chunks, leave
        self._failed = failed or failed_line

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all, or until the client leaves."""
        sending = asyncio.ensure_future(self._send(send))
        leaving = asyncio.ensure_future(left(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            self._leave()
            for task in (sending, leaving):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        last = b""
        try:
            async for chunk in self._chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except Exception as error:
            last = self._failed(as_http(error))
        await send({"type": "http.response.body", "body": last, "more_body": False})


def line(value: dict[str, Any]) -> bytes:
    """A line of JSON."""
    return to_json(value) + b"\n"


def failed_line(error: HttpError) -> bytes:
    """The line for an error."""
    return line({"type": "error"} | openai_body(error))
