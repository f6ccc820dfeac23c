"""What the outermost application does to the bodies of requests."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from relquery.serve.access.gate import Gate
from relquery.serve.app import make_app
from relquery.serve.middleware import Front
from relquery.serve.operation.measures import Measures
from relquery.serve.settings import ServeConfig

PATIENCE = 0.3
HEADERS = [(b"host", b"localhost"), (b"content-type", b"application/json")]


async def _length(scope: Scope, receive: Receive, send: Send) -> None:
    body = await Request(scope, receive).body()
    await PlainTextResponse(str(len(body)))(scope, receive, send)


async def answered(app: Any, drops: int, pause: float, path: str = "/") -> tuple[Message, bytes]:
    """(how an answer starts, its body) to a body of which a byte comes after each pause."""
    server: Any = SimpleNamespace(
        models=("demo",),
        config=ServeConfig("demo"),
        serving=0,
        stopping=False,
        gate=Gate(),
        measures=Measures("relserve"),
    )
    left, sent = drops, []

    async def receive() -> Message:
        nonlocal left
        await asyncio.sleep(pause)
        left -= 1
        return {"type": "http.request", "body": b" ", "more_body": left > 0}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": HEADERS,
        "state": {},
        "http_version": "1.1",
        "scheme": "http",
        "client": ("127.0.0.1", 1),
    }
    await Front(app, server, patience=PATIENCE)(scope, receive, send)
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
        await asyncio.sleep(PAUSED)
        await receive()  # as when it waits for the client to leave
        await PlainTextResponse("ok")(scope, receive, send)

    start, body = asyncio.run(answered(slow, 3, 0.01))
    assert (start["status"], body) == (200, b"ok")
    assert asyncio.run(answered(_length, 3, 0.01))[1] == b"3"


PAUSED = 2 * PATIENCE
