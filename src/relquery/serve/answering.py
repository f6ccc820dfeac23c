"""Answers on their way out: whole, or as server-sent events; a client that leaves cancels them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from relquery.prompt import Answer
from relquery.serve.errors import HttpError, as_http
from relquery.serve.flow import Flow, Part


class ClientGoneError(HttpError):
    """The client has left before its answer."""

    def __init__(self) -> None:
        super().__init__(499, "The client has closed the connection.", "client_closed")


async def whole(request: Request, flow: Flow) -> list[Answer]:
    """All answers. Raises ClientGoneError if the client leaves, and what broke the job."""
    answers = asyncio.ensure_future(flow.answers())
    leaving = asyncio.ensure_future(left(request.receive))
    try:
        await asyncio.wait((answers, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not answers.done():
            raise ClientGoneError
        return answers.result()
    finally:
        flow.close()
        for task in (answers, leaving):
            task.cancel()
        await asyncio.gather(answers, leaving, return_exceptions=True)


class EventStream(Response):
    """A flow as server-sent events.

    first: bytes that are sent at once. events: the bytes for what has come, maybe none. last: what
    ends the stream. failed: the event for an error in the midst of it.
    """

    def __init__(
        self,
        flow: Flow,
        events: Callable[[list[Part]], bytes],
        *,
        first: bytes = b"",
        last: Callable[[], bytes] = bytes,
        failed: Callable[[HttpError], bytes],
        media_type: str = "text/event-stream",
    ) -> None:
        super().__init__(media_type=media_type)
        # The length of a stream is not known; proxies must not collect it.
        self.raw_headers = [each for each in self.raw_headers if each[0] != b"content-length"]
        self.raw_headers += [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
        self._flow, self._events, self._failed = flow, events, failed
        self._first, self._last = first, last

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events until the flow ends or the client leaves."""
        leaving = asyncio.ensure_future(left(receive))
        has_left = False

        def leave(_: object) -> None:
            nonlocal has_left
            if not leaving.cancelled():
                has_left = True
                self._flow.leave()

        leaving.add_done_callback(leave)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if self._first:
                await _send(send, self._first)
            try:
                while not has_left and (parts := await self._flow.some()):
                    if content := self._events(parts):
                        await _send(send, content)
                content = self._last()
            except Exception as error:
                content = self._failed(as_http(error))
            if not has_left:
                await _send(send, content, more=False)
        finally:
            leaving.cancel()
            self._flow.close()
            with suppress(asyncio.CancelledError):
                await leaving


async def _send(send: Send, content: bytes, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": content, "more_body": more})


async def left(receive: Receive) -> None:
    """Returns when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def joined(events: Iterable[str]) -> bytes:
    """Server-sent events with these data."""
    return "".join(f"data: {data}\n\n" for data in events).encode()
