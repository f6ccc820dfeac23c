"""Connections and bodies that come slowly, or are too much."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from relquery.serve.serving import HttpConnection


class Hasty(HttpConnection):
    patience, whole = 0.2, 0.6


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


def test_a_body_that_drips_is_waited_for_no_longer_than_the_whole_may_take() -> None:
    head = b"POST / HTTP/1.1\r\nContent-Length: 99\r\n\r\n"
    found = asyncio.run(_talk(head, *[b"x"] * 20, pause=0.1))
    assert found.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in found


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


def test_a_further_request_of_a_connection_must_come_in_time_as_well() -> None:
    found = asyncio.run(_talk(POST + b"abc", b"GET / HTTP/1.1\r\nX: 1", pause=0.05))
    assert (found.count(b" 200 "), found.count(b" 408 ")) == (1, 1)


def test_what_follows_a_body_without_end_is_refused() -> None:
    head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
    trailers = [b"x-%d: %s\r\n" % (at, b"y" * 1000) for at in range(200)]
    assert b" 200 " not in asyncio.run(_talk(head, *trailers, b"\r\n"))
    assert b" 200 " in asyncio.run(_talk(head, *trailers[:20], b"\r\n"))
