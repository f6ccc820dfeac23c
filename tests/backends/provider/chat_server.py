"""A server of the chat-completions form on loopback, whose answers a test writes as a function."""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

Body = dict[str, Any]
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"


@dataclass(frozen=True, slots=True)
class Reply:
    """What is sent back; a string body is sent as it stands."""

    body: Body | str
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


class Silence(Enum):
    """No reply: the connection is held until the client leaves it, or closed."""

    UNTIL_CLIENT_LEAVES = 1
    HANG_UP = 2


@dataclass(frozen=True, slots=True)
class Stream:
    """Sent as server-sent events while it is read: a test waits or fails between two of them.

    A body is sent as JSON, a string as it stands; a silence leaves the stream unended.
    """

    events: Iterable[Body | str | Silence]


AnswerFunction = Callable[[Body], Reply | Stream | Silence]
Chat = TypeVar("Chat", bound="ChatServer")


def completion(
    text: str | None,
    finish: str | None = "stop",
    prompt_tokens: int = 10,
    cached_tokens: int | None = None,
    output_tokens: int = 2,
    **message: Any,
) -> Reply:
    """A whole chat completion."""
    usage: Body = {"prompt_tokens": prompt_tokens, "completion_tokens": output_tokens}
    usage["prompt_tokens_details"] = (
        None if cached_tokens is None else {"cached_tokens": cached_tokens}
    )
    content = {"role": "assistant", "content": text, **message}
    choice = {"index": 0, "message": content, "finish_reason": finish}
    return Reply({"object": "chat.completion", "choices": [choice], "usage": usage})


def response(
    text: str | None,
    status: str = "completed",
    cached_tokens: int = 0,
    output_tokens: int = 2,
    reasoned: bool = False,
    **more: Any,
) -> Reply:
    """A whole reply of the Responses API; refusal: in place of a text."""
    refusal = more.pop("refusal", None)
    said = (
        {"type": "output_text", "text": text, "annotations": []}
        if refusal is None
        else {"type": "refusal", "refusal": refusal}
    )
    message = {"type": "message", "id": "m", "role": "assistant", "status": status}
    items: list[Body] = [{"type": "reasoning", "id": "r", "summary": []}] if reasoned else []
    if text is not None or refusal is not None:
        items.append({**message, "content": [said]})
    usage = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": cached_tokens},
        "output_tokens": output_tokens,
        "total_tokens": 10 + output_tokens,
    }
    body = {"id": "resp", "object": "response", "status": status, "output": items, "usage": usage}
    return Reply({**body, **more})


def message(
    text: str | None,
    stop_reason: str = "end_turn",
    cached_tokens: int = 0,
    written_tokens: int = 0,
    thought: str | None = None,
    **more: Any,
) -> Reply:
    """A whole message of Anthropic's, of 10 prompt tokens that no cache has a part in."""
    content: list[Body] = []
    if thought is not None:
        content.append({"type": "thinking", "thinking": thought, "signature": "s"})
    if text is not None:
        content.append({"type": "text", "text": text})
    usage = {
        "input_tokens": 10,
        "cache_read_input_tokens": cached_tokens,
        "cache_creation_input_tokens": written_tokens,
        "output_tokens": 2,
    }
    body = {"id": "msg", "type": "message", "role": "assistant", "model": "m", "content": content}
    return Reply({**body, "stop_reason": stop_reason, "usage": usage, **more})


def anthropic_failure(status: int, message: str, kind: str, **headers: str) -> Reply:
    """An error in the form that Anthropic gives it."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    error = {"type": kind, "message": message}
    return Reply({"type": "error", "error": error, "request_id": "req"}, status, named)


def part(finish: str | None = None, **delta: Any) -> Body:
    """One part of a streamed completion."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"object": "chat.completion.chunk", "choices": [choice]}


def streamed(*words: str, finish: str = "stop", cached_tokens: int | None = None) -> list[Body]:
    """A whole streamed completion, with its usage at the end: 10 tokens asked, one a word."""
    usage: Body = {"prompt_tokens": 10, "completion_tokens": len(words)}
    if cached_tokens is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": cached_tokens}
    return [
        part(role="assistant", content=""),
        *(part(content=word) for word in words),
        part(finish=finish),
        {"object": "chat.completion.chunk", "choices": [], "usage": usage},
    ]


def failure(
    status: int, message: str, code: str | None = None, param: str | None = None, **headers: str
) -> Reply:
    """An error in the form that OpenAI gives it."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    error = {"message": message, "type": "error", "param": param, "code": code}
    return Reply({"error": error}, status, named)


def question(body: Body) -> str:
    """The last message."""
    messages = body["input"] if "input" in body else body["messages"]
    return str(messages[-1]["content"])


class ChatServer:
    """asked: bodies in order of arrival; peak: most at once; hung_up: clients that left early.

    models: that it says it has, each with its owner. told: what it tells of a model.
    """

    def __init__(self, answer: AnswerFunction, route: str) -> None:
        self.answer, self.route = answer, route
        self.asked: list[Body] = []
        self.keys: set[str] = set()
        self.running = self.peak = self.hung_up = 0
        self.lock = threading.Lock()
        self.closing = threading.Event()
        self.models: dict[str, str] = {}
        self.told: dict[str, Body] = {}
        self.http = _Http(("127.0.0.1", 0), _Handler)
        self.http.chat = self

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}/v1"

    @property
    def root(self) -> str:
        """The address without /v1, as Anthropic's SDK wants it."""
        return self.url.removesuffix("/v1")

    @property
    def questions(self) -> list[str]:
        return [question(body) for body in self.asked]

    def serve(self, body: Body, key: str, connection: socket.socket) -> Reply | Stream | None:
        with self.lock:
            self.asked.append(body)
            self.keys.add(key)
            self.running += 1
            self.peak = max(self.peak, self.running)
        try:
            reply = self.answer(body)
            if reply is Silence.UNTIL_CLIENT_LEAVES:
                self.wait(connection)
            return None if isinstance(reply, Silence) else reply
        finally:
            with self.lock:
                self.running -= 1

    def wait(self, connection: socket.socket) -> None:
        while not self.closing.is_set():
            if select.select([connection], [], [], 0.02)[0]:
                with self.lock:
                    self.hung_up += 1
                return


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    chat: ChatServer


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Http

    def handle(self) -> None:
        with suppress(ConnectionError):  # a client may leave whenever it likes
            super().handle()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        given = self.headers["x-api-key"] or self.headers["Authorization"]
        key = given.removeprefix("Bearer ")
        if self.path != self.server.chat.route:
            reply: Reply | Stream | None = failure(404, f"no route {self.path}")
        else:
            reply = self.server.chat.serve(body, key, self.connection)
        if reply is None:
            self.close_connection = True
        elif isinstance(reply, Stream):
            self._stream(reply)
        else:
            self._send(reply)

    def do_GET(self) -> None:
        models = self.server.chat.models.items()
        data = [{"id": name, "object": "model", "owned_by": owner} for name, owner in models]
        listed = Reply({"object": "list", "data": data})
        if self.path == "/v1/models":
            self._send(listed)
        elif (told := self.server.chat.told.get(self.path.removeprefix("/v1/models/"))) is not None:
            self._send(Reply(told))
        else:
            self._send(failure(404, f"no route {self.path}"))

    def _send(self, reply: Reply) -> None:
        text = reply.body if isinstance(reply.body, str) else json.dumps(reply.body)
        self.send_response(reply.status)
        headers = {"Content-Type": "application/json", **reply.headers}
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def _stream(self, stream: Stream) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in stream.events:
            if isinstance(event, Silence):
                if event is Silence.UNTIL_CLIENT_LEAVES:
                    self.server.chat.wait(self.connection)
                self.close_connection = True
                return
            self._chunk(event if isinstance(event, str) else f"data: {json.dumps(event)}\n\n")
        self._chunk("data: [DONE]\n\n")
        self._chunk("")

    def _chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(answer: AnswerFunction, route: str = CHAT) -> Iterator[ChatServer]:
    """A server in threads of this process, until the block ends."""
    with running(ChatServer(answer, route)) as chat:
        yield chat


@contextmanager
def running(chat: Chat) -> Iterator[Chat]:
    """The same, for one that is made."""
    thread = threading.Thread(target=chat.http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield chat
    finally:
        chat.closing.set()
        chat.http.shutdown()
        thread.join()
        chat.http.server_close()


Serve = Callable[[AnswerFunction], ChatServer]


def until(holds: Callable[[], bool]) -> None:
    """Wait for something that other threads or processes bring about."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "did not come about within a minute"
        time.sleep(0.01)
