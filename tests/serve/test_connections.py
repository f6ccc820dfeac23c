"""Connections and bodies that come slowly, or are too much."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from relquery.serve.app import make_app
from relquery.serve.auth import Authenticator
from relquery.serve.metrics import Metrics
from relquery.serve.middleware import RequestMiddleware
from relquery.serve.serving import HttpConnection
from relquery.serve.settings import ServeConfig


class Hasty(HttpConnection):
    patience = 0.2


async def _length(scope: Scope, receive: Receive, send: Send) -> None:
    with suppress(ClientDisconnect):
        body = await Request(scope, receive).body()
        await PlainTextResponse(str(len(body)))(scope, receive, send)


async def _at_once(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("no", 401)(scope, receive, send)


async def _talk(*parts: bytes, pause: float = 0.0, app: ASGIApp = _length) -> bytes:
    """What a server answers that is sent these parts, until it closes or a second has passed."""
    config = uvicorn.Config(app, http=Hasty, ws="none", lifespan="off", log_config=None)
    config.load()
    state = uvicorn.server.ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: Hasty(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        reading = asyncio.create_task(_read(reader))
        with suppress(ConnectionError):  # it was closed on what was sent
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(pause)
        found = await reading
        writer.close()
    return found


async def _read(reader: asyncio.StreamReader) -> bytes:
    found = b""
    with suppress(ConnectionError, TimeoutError):
        while more := await asyncio.wait_for(reader.read(65_536), 1.0):
            found += more
    return found


POST = b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\n"


def test_a_request_that_does_not_come_is_waited_for_no_longer() -> None:
    async def answers() -> list[bytes]:
        drops = [bytes([each]) for each in b"GET / HTTP/1.1"]  # the head must come in time, too
        halves = [(), (b"GE",), (b"GET / HTTP/1.1\r\nX: 1",), (POST,), (POST, b"a")]
        return await asyncio.gather(*(_talk(*each) for each in halves), _talk(*drops, pause=0.05))

    assert [each[:13] for each in asyncio.run(answers())] == [b"HTTP/1.1 408 "] * 6


def test_a_body_may_take_long_as_long_as_it_comes() -> None:
    found = asyncio.run(_talk(POST, b"a", b"b", b"c", pause=0.12))
    assert (found[:13], found[-5:]) == (b"HTTP/1.1 200 ", b"\r\n\r\n3")


@pytest.mark.parametrize("size", [4, 20])
def test_the_rest_of_a_body_that_is_answered_already_must_come_in_time(size: int) -> None:
    head = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % size
    found = asyncio.run(_talk(head, *[b"x"] * size, POST + b"abc", pause=0.04, app=_at_once))
    answers = 2 if size == 4 else 1
    assert found.count(b"HTTP/1.1 ") == found.count(b" 401 ") == answers


def test_a_connection_between_two_requests_is_left_to_its_own_limit() -> None:
    found = asyncio.run(_talk(POST + b"abc", POST + b"def", pause=0.4))
    assert found.count(b"HTTP/1.1 200 ") == 2
    assert b" 408 " not in found


def test_what_follows_a_body_without_end_is_refused() -> None:
    head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
    trailers = [b"x-%d: %s\r\n" % (at, b"y" * 1000) for at in range(200)]
    assert b" 200 " not in asyncio.run(_talk(head, *trailers, b"\r\n"))
    assert b" 200 " in asyncio.run(_talk(head, *trailers[:20], b"\r\n"))


PATIENCE = 0.3
HEADERS = [(b"host", b"localhost"), (b"content-type", b"application/json")]


async def answered(app: Any, drops: int, pause: float, path: str = "/") -> tuple[Message, bytes]:
    """(how an answer starts, its body) to a body of which a byte comes after each pause."""
    server: Any = SimpleNamespace(
        models=("demo",),
        config=ServeConfig("demo"),
        serving=0,
        admission=SimpleNamespace(stopping=False),
        gate=Authenticator(),
        metrics=Metrics("relserve"),
    )
    left, sent = drops, []

    async def receive() -> Message:
        nonlocal left
        await asyncio.sleep(pause)
        left -= 1
        return {"type": "http.request", "body": b" ", "more_body": left > 0}

    async def send(message: Message) -> None:
        sent.append(message)

    where = {"path": path, "raw_path": path.encode(), "query_string": b"", "headers": HEADERS}
    how = {"type": "http", "method": "POST", "http_version": "1.1", "scheme": "http"}
    scope = how | where | {"state": {}, "client": ("127.0.0.1", 1)}
    await RequestMiddleware(app, server, patience=PATIENCE)(scope, receive, send)
    return sent[0], b"".join(each.get("body", b"") for each in sent)


@pytest.mark.parametrize("path", ["/tokenize", "/v1/files", "/v1/query/execute"])
def test_a_body_that_drips_is_waited_for_no_longer_than_the_whole_may_take(path: str) -> None:
    began = time.monotonic()
    start, body = asyncio.run(answered(make_app(), 10_000, 0.02, path))
    assert start["status"] == 408
    assert (b"connection", b"close") in start["headers"]
    assert b"has not come in 0.3 seconds" in body
    assert time.monotonic() - began < 5


def test_a_body_that_comes_in_time_is_read_and_then_no_more_is_timed() -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["more_body"]:
            pass
        await asyncio.sleep(2 * PATIENCE)
        await receive()  # as when it waits for the client to leave
        await PlainTextResponse("ok")(scope, receive, send)

    start, body = asyncio.run(answered(slow, 3, 0.01))
    assert (start["status"], body) == (200, b"ok")
    assert asyncio.run(answered(_length, 3, 0.01))[1] == b"3"
