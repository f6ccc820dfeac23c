"""HTTP/1.1 on loopback, as much as a stand-in needs: it can also cut a reply, hang up and reset.

A server framework would not let a reply break off at will.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
_MOST_HEAD = 1 << 16


class Closed(Exception):  # noqa: N818 - no failure of this program
    """No more is sent: the connection ends, with a reset if `is_reset`."""

    def __init__(self, *, is_reset: bool = False) -> None:
        super().__init__()
        self.is_reset = is_reset


@dataclass(frozen=True, slots=True)
class Request:
    """A request."""

    method: str
    path: str
    """With the query."""
    headers: dict[str, str]
    """By name in lower case."""
    body: bytes
    left: Callable[[], Awaitable[object]]
    """Waits until the client leaves."""

    @property
    def route(self) -> str:
        """The path without the query."""
        return self.path.partition("?")[0]


@dataclass(frozen=True, slots=True)
class Response:
    """A reply."""

    body: Json | str = ""
    """A text is sent as it stands, other bodies as JSON."""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    events: AsyncIterator[str] | None = None
    """Server-sent events in place of a body, sent as they come; they may raise Closed."""
    is_cut: bool = False
    """Whether the connection ends in the middle of the body."""


Handle = Callable[[Request], Awaitable[Response]]
"""May raise Closed in place of a reply."""


async def _read(reader: asyncio.StreamReader) -> Request | None:
    """The next request; None if the client has left."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, path, _ = first.split(" ", 2)
    named = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in named}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, path, headers, body, lambda: reader.read(1))


async def _write(writer: asyncio.StreamWriter, response: Response) -> None:
    body = response.body
    text = body if isinstance(body, str) else json.dumps(body)
    data = text.encode(errors="surrogateescape")  # so a text may have bytes that are not UTF-8
    headers = {"content-type": "application/json", "content-length": str(len(data))}
    if response.events is not None:
        headers = {"content-type": "text/event-stream", "transfer-encoding": "chunked"}
    headers |= response.headers
    lines = [f"HTTP/1.1 {response.status} {'OK' if response.status == 200 else 'Failed'}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
    if response.events is None:
        writer.write(data[: len(data) // 2] if response.is_cut else data)
    else:
        async for event in response.events:
            chunk = event.encode()
            writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
    await writer.drain()
    if response.is_cut:
        raise Closed


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close so that the client sees a reset, not an end."""
    raw = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def listen(handle: Handle, port: int = 0) -> asyncio.Server:
    """A server on loopback; port 0 for any that is free."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # It is cancelled once the server is closed.
        with suppress(asyncio.CancelledError, ConnectionError, asyncio.IncompleteReadError):
            try:
                while (request := await _read(reader)) is not None:
                    await _write(writer, await handle(request))
            except Closed as closed:
                if closed.is_reset:
                    _reset(writer)
            finally:
                writer.close()

    return await asyncio.start_server(converse, "127.0.0.1", port, limit=_MOST_HEAD, backlog=1024)


def address(server: asyncio.Server) -> str:
    """Its address, without a path."""
    return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@contextmanager
def running(handle: Handle) -> Iterator[str]:
    """A server in a thread of this process until the block ends; gives its address."""
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(listen(handle))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield address(server)
    finally:
        asyncio.run_coroutine_threadsafe(_close(server), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _close(server: asyncio.Server) -> None:
    server.close()
    own = asyncio.current_task()
    others = [task for task in asyncio.all_tasks() if task is not own]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.sleep(0)  # connections close in the loop's next turn
    await asyncio.sleep(0)
