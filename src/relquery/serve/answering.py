"""Answers on their way out: whole, or as server-sent events; a client that leaves cancels them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from relquery.prompt import Answer
from relquery.serve.errors import HttpError, as_http, response_of
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


def _nothing(parts: list[Part]) -> bytes:
    del parts
    return b""


class EventStream(Response):
    """A flow as server-sent events. It begins with the first part; what fails before that is
    answered with the status of the error.

    first: the bytes before those of the first parts, which it gets. events: the bytes for what has
    come, maybe none. last: what ends the stream. failed: the event for an error in the midst of it.
    prepare: awaited before `events`.
    """

    def __init__(
        self,
        flow: Flow,
        events: Callable[[list[Part]], bytes],
        *,
        first: Callable[[list[Part]], bytes] = _nothing,
        last: Callable[[], bytes] = bytes,
        failed: Callable[[HttpError], bytes],
        prepare: Callable[[list[Part]], Awaitable[None]] | None = None,
        media_type: str = "text/event-stream",
    ) -> None:
        super().__init__(media_type=media_type)
        # The length of a stream is not known; proxies must not collect it.
        self.raw_headers = [each for each in self.raw_headers if each[0] != b"content-length"]
        self.raw_headers += [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
        self._flow, self._events, self._failed = flow, events, failed
        self._first, self._last, self._prepare = first, last, prepare

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
        begun = False
        try:
            try:
                while not has_left and (parts := await self._flow.some()):
                    first = b"" if begun else self._first(parts)
                    content = first + await self._shown(parts)
                    if not begun:
                        begun = True
                        await send(_start(self.raw_headers))
                    if content:
                        await _send(send, content)
                if has_left and not begun:
                    raise ClientGoneError
                content = self._last()
            except Exception as error:
                found = as_http(error)
                if not begun:
                    refusal = response_of(found, scope, scope["state"]["request_id"])
                    await refusal(scope, receive, send)
                    return
                content = self._failed(found)
            if begun and not has_left:
                await _send(send, content, more=False)
        finally:
            leaving.cancel()
            self._flow.close()
            with suppress(asyncio.CancelledError):
                await leaving

    async def _shown(self, parts: list[Part]) -> bytes:
        if self._prepare is not None:
            await self._prepare(parts)
        return self._events(parts)


def _start(headers: list[tuple[bytes, bytes]]) -> Message:
    return {"type": "http.response.start", "status": 200, "headers": headers}


async def _send(send: Send, content: bytes, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": content, "more_body": more})


async def left(receive: Receive) -> None:
    """Returns when the client has closed the connection."""
    with suppress(ClientGoneError):  # it left in the midst of its body
        while (await receive())["type"] != "http.disconnect":
            pass


def joined(events: Iterable[str]) -> bytes:
    """Server-sent events with these data."""
    return "".join(f"data: {data}\n\n" for data in events).encode()
