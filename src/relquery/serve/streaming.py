"""What comes of one request, on its way to one client: whole, or as events.

A client that leaves closes the stream, which cancels what is still open of it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import Any, Generic, NamedTuple, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from relquery.backends.local.asking import Piece
from relquery.engine.requests.relquery import Latency
from relquery.prompt import Answer
from relquery.serve.errors import HttpError, as_http, openai_body, response_of
from relquery.serve.values import to_json

NDJSON = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
EVENTS = "text/event-stream"
STREAMED: dict[int | str, dict[str, Any]] = {200: {"content": {EVENTS: {}}}}
"""For `responses=` of a route whose answers are whole, or events."""

T = TypeVar("T")


class ClientGoneError(HttpError):
    """The client has left before its answer."""

    def __init__(self) -> None:
        super().__init__(499, "The client has closed the connection.", "client_closed")


class ResponseStream(Generic[T]):
    """Parts in the event loop, which one task reads.

    cancel: called when the reader leaves before the end.
    """

    def __init__(self, cancel: Callable[[], object]) -> None:
        self.error: BaseException | None = None
        """What broke it."""
        self.over = False
        self._cancel = cancel
        self._parts: deque[T] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def put(self, part: T) -> None:
        """A part has come."""
        self._parts.append(part)
        self._wake()

    def finish(self, error: BaseException | None = None) -> None:
        """No more parts come. error: what broke it."""
        if not self.over:
            self.over, self.error = True, error
            self._wake()

    async def some(self) -> list[T]:
        """All that has come since the last call, at least one part; nothing at the end.

        Raises what broke the stream, once all that came before has been given, and ClientGoneError
        if the reader has left.
        """
        while not self._parts and not self.over:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        parts = list(self._parts)
        self._parts.clear()
        if not parts and self.error is not None:
            raise self.error
        return parts

    def close(self) -> None:
        """The reader wants no more; what is open is cancelled."""
        if not self.over:
            self._parts.clear()
            self.finish(ClientGoneError())
            self._cancel()

    @asynccontextmanager
    async def read_by(self, receive: Receive) -> AsyncIterator[None]:
        """A block in which a client reads, which closes the stream if it leaves."""
        leaving = asyncio.ensure_future(_left(receive))
        leaving.add_done_callback(lambda _: self.close())
        try:
            yield
        finally:
            self.close()
            leaving.cancel()
            with suppress(asyncio.CancelledError):
                await leaving

    async def all(self, receive: Receive | None) -> list[T]:
        """All parts. receive: of the client that waits for them, if one does. Raises
        ClientGoneError if it leaves, and what broke the stream."""
        found: list[T] = []
        async with nullcontext() if receive is None else self.read_by(receive):
            while parts := await self.some():
                found += parts
        return found

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


class Part(NamedTuple):
    """What has come of one prompt: a piece of its answer, or the answer."""

    at: int
    piece: Piece | None = None
    answer: Answer | None = None


class AnswerStream(ResponseStream[Part]):
    """The answers of the jobs that one request is made of, whose Sink it is.

    size, jobs: prompts, and jobs that they are asked in. latency: None before the end.
    """

    def __init__(self, size: int, jobs: int, cancel: Callable[[], object]) -> None:
        super().__init__(cancel)
        self.size, self._jobs = size, jobs
        self.latency: Latency | None = None

    def piece(self, index: int, piece: Piece) -> None:
        """See Sink."""
        self.put(Part(index, piece=piece))

    def add(self, index: int, answer: Answer) -> None:
        """See Sink."""
        self.put(Part(index, answer=answer))

    def end(self, latency: Latency | None, error: BaseException | None = None) -> None:
        """See Sink. It ends with the last of its jobs, or the first that breaks."""
        self._jobs -= 1
        self.latency = latency or self.latency
        if error is not None or not self._jobs:
            self.finish(error)

    async def answers(self, receive: Receive | None = None) -> list[Answer]:
        """All answers, in the order of the prompts. Raises what `all` raises."""
        parts = await self.all(receive)
        found = {part.at: part.answer for part in parts if part.answer is not None}
        return [found[at] for at in range(self.size)]


class EventResponse(Response):
    """Bytes as they come, until their client leaves.

    What fails before the first of them is answered with the status of the error. failed: the bytes
    for an error in the midst of them; None to raise it, which closes the connection.
    """

    def __init__(
        self,
        chunks: AsyncIterator[bytes],
        stream: ResponseStream[Any],
        failed: Callable[[HttpError], bytes] | None,
        media_type: str = EVENTS,
    ) -> None:
        super().__init__(media_type=media_type)
        # The length of a stream is not known; proxies must not collect it.
        self.raw_headers = [each for each in self.raw_headers if each[0] != b"content-length"]
        self.raw_headers += [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
        self._chunks, self._stream, self._failed = chunks, stream, failed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all. Raises ClientGoneError if the client leaves before it begins."""
        head = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        begun, last = False, b""
        async with self._stream.read_by(receive):
            try:
                async for chunk in self._chunks:
                    if not begun:
                        begun = True
                        await send(head)
                    if chunk:
                        await send(_body(chunk, more=True))
            except ClientGoneError:
                if not begun:
                    raise
                return
            except Exception as error:
                found = as_http(error)
                if not begun:
                    refusal = response_of(found, scope, scope["state"]["request_id"])
                    await refusal(scope, receive, send)
                    return
                if self._failed is None:
                    raise
                last = self._failed(found)
        await send(_body(last, more=False))


def _body(content: bytes, *, more: bool) -> dict[str, Any]:
    return {"type": "http.response.body", "body": content, "more_body": more}


async def _left(receive: Receive) -> None:
    """Returns when the client has closed the connection."""
    with suppress(ClientGoneError):  # it left in the midst of its body
        while (await receive())["type"] != "http.disconnect":
            pass


def event(value: Any, kind: str = "") -> bytes:
    """A server-sent event."""
    named = f"event: {kind}\n".encode() if kind else b""
    return named + b"data: " + to_json(value) + b"\n\n"


def failed_event(error: HttpError) -> bytes:
    """The event for an error, in OpenAI's form."""
    return event(openai_body(error))


def line(value: dict[str, Any]) -> bytes:
    """A line of JSON."""
    return to_json(value) + b"\n"


def failed_line(error: HttpError) -> bytes:
    """The line for an error."""
    return line({"type": "error"} | openai_body(error))
