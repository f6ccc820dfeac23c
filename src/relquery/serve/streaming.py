"""The answers to one request, on their way to one client: whole, or as events.

A client that leaves closes the stream, which cancels what is still open of it.
"""

from __future__ import annotations

import asyncio
import secrets
import string
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from relquery.backends.local.asking import Begun, Piece
from relquery.engine.requests.relquery import Latency
from relquery.prompt import Answer, Finish
from relquery.serve.errors import HttpError, as_http, openai_body, response_of, to_json
from relquery.tools import CallForm, CallParser, Delta, ToolCall, ToolUse

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
        self._parts: list[T] = []
        self._news = asyncio.Event()

    def put(self, part: T) -> None:
        """A part has come."""
        self._parts.append(part)
        self._news.set()

    def finish(self, error: BaseException | None = None) -> None:
        """No more parts come. error: what broke it."""
        if not self.over:
            self.over, self.error = True, error
            self._news.set()

    async def some(self) -> list[T]:
        """All that has come since the last call, at least one part; nothing at the end.

        Raises what broke the stream, once all that came before has been given, and ClientGoneError
        if the reader has left.
        """
        while not self._parts and not self.over:
            self._news.clear()
            await self._news.wait()
        parts, self._parts = self._parts, []
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
    async def read_by(self, receive: Receive | None) -> AsyncIterator[None]:
        """A block in which a client reads, which closes the stream if it leaves; None for who
        stays."""
        leaving = asyncio.ensure_future((receive and _left(receive)) or asyncio.Future())
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
        items: list[T] = []
        async with self.read_by(receive):
            while parts := await self.some():
                items += parts
        return items


class AnswerPart(NamedTuple):
    """Progress of one prompt: a piece of its answer, or the answer."""

    at: int
    piece: Piece | None = None
    answer: Answer | None = None


class JobAnswers(ResponseStream[AnswerPart]):
    """The answers of the jobs that one request is made of, whose Sink it is. It ends with the last
    of these, or the first that breaks.

    size, jobs: prompts, and jobs that they are asked in. latency: None before the end.
    """

    def __init__(self, size: int, jobs: int, cancel: Callable[[], object]) -> None:
        super().__init__(cancel)
        self.size, self._jobs = size, jobs
        self.latency: Latency | None = None

    def piece(self, index: int, piece: Piece) -> None:
        self.put(AnswerPart(index, piece=piece))

    def add(self, index: int, answer: Answer) -> None:
        self.put(AnswerPart(index, answer=answer))

    def end(self, latency: Latency | None, error: BaseException | None = None) -> None:
        self._jobs -= 1
        self.latency = latency or self.latency
        if error is not None or not self._jobs:
            self.finish(error)

    async def answers(self, receive: Receive | None = None) -> list[Answer]:
        """All answers, in the order of the prompts. Raises what `all` raises."""
        parts = await self.all(receive)
        answers = {part.at: part.answer for part in parts if part.answer is not None}
        return [answers[index] for index in range(self.size)]


class ResponseForm(ABC):
    """One request's answers in the form of its API: whole, or as events.

    Its methods raise HttpError for an answer that could not be served. at: the number of a choice.
    """

    async def learn(self, some: Sequence[Piece | Answer]) -> None:  # noqa: B027
        """Ask the engine for what is needed to show what has come."""

    @abstractmethod
    def whole(self, answers: list[Answer]) -> Any:
        """The body of an answer that is sent at once. answers: in the order of the choices."""

    def begin(self, begun: Begun | Answer | None) -> bytes:
        """The events before all others. begun: what is known of the first prompt."""
        return b""

    @abstractmethod
    def piece(self, at: int, piece: Piece) -> bytes:
        """The events of a part of an answer."""

    @abstractmethod
    def last(self, at: int, answer: Answer) -> bytes:
        """The events that end an answer."""

    def end(self) -> bytes:
        """The events after all others."""
        return b""

    def failed(self, error: HttpError) -> bytes:
        """The event for an error in the midst of them."""
        return failed_event(error)

    async def events(self, stream: JobAnswers, places: Sequence[int]) -> AsyncIterator[bytes]:
        """All events. places: the choices that the stream's answers are."""
        begun = False
        while parts := await stream.some():
            await self.learn([each for part in parts if (each := part.piece or part.answer)])
            first, chunk = parts[0], list[bytes]()
            if not begun:
                chunk.append(self.begin(first.piece.begun if first.piece else first.answer))
                begun = True
            for index, piece, answer in parts:
                if piece is not None:
                    chunk.append(self.piece(places[index], piece))
                elif answer is not None:
                    chunk.append(self.last(places[index], answer))
            yield b"".join(chunk)
        yield self.end()


_SHORT = string.ascii_letters + string.digits


class ParsedAnswer:
    """One answer as its text and calls, in parts or as a whole. prefix: of the ids of calls."""

    def __init__(self, use: ToolUse | None, form: CallForm, prefix: str) -> None:
        is_read = use is not None and use.choice != "none"
        self._parser = CallParser(form) if is_read else None
        self._prefix = "" if form.short_ids else prefix
        self.text = ""
        """All that has come."""
        self.calls: list[ToolCall] = []
        """Those that have begun, with what has come of their arguments."""

    def take(self, text: str) -> list[Delta]:
        """What a piece of the answer adds."""
        return self._noted([Delta(text)] if self._parser is None else self._parser.take(text))

    def end(self) -> list[Delta]:
        """What is left once all of it was taken."""
        return self._noted([] if self._parser is None else self._parser.end())

    def whole(self, answer: Answer) -> list[Delta]:
        """All of an answer."""
        return self.take(answer.text or "") + self.end()

    def calls_end(self, answer: Answer) -> bool:
        """Whether the answer has ended with calls, and not in their midst."""
        return bool(self.calls) and answer.finish is Finish.STOP and answer.stopped_by is None

    def _noted(self, deltas: list[Delta]) -> list[Delta]:
        for delta in deltas:
            self.text += delta.text
            if delta.call is None:
                continue
            if delta.name:
                self.calls.append(ToolCall(self._new_id(), delta.name, ""))
            call = self.calls[delta.call]
            self.calls[delta.call] = replace(call, arguments=call.arguments + delta.arguments)
        return [delta for delta in deltas if delta != Delta()]

    def _new_id(self) -> str:
        """Of a call: one that the model's chat template takes when it comes back."""
        if self._prefix:
            return f"{self._prefix}{secrets.token_hex(12)}"
        return "".join(secrets.choice(_SHORT) for _ in range(9))


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
                http_error = as_http(error)
                if not begun:
                    refusal = response_of(http_error, scope, scope["state"]["request_id"])
                    await refusal(scope, receive, send)
                    return
                if self._failed is None:
                    raise
                last = self._failed(http_error)
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
