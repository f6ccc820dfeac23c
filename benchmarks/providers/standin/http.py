"""HTTP/1.1 on loopback, as much as a stand-in needs: it can also hang, cut a reply and reset.

A server framework would not let a reply break off at will.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal

End = Literal["whole", "cut", "reset", "hang"]
_MOST_HEAD = 1 << 16


@dataclass(frozen=True, slots=True)
class Request:
    """A request. headers: by name in lower case. path: with the query."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Response:
    """A reply. events: sent one by one as server-sent events, in place of a body."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    events: tuple[bytes, ...] | None = None
    end: End = "whole"


Handle = Callable[[Request], Awaitable[Response]]


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
    return Request(method, path, headers, body)


async def _write(writer: asyncio.StreamWriter, response: Response) -> None:
    is_stream = response.events is not None
    kind = "text/event-stream" if is_stream else "application/json"
    headers = {"content-type": kind, **response.headers}
    if is_stream:
        headers["transfer-encoding"] = "chunked"
    else:
        headers["content-length"] = str(len(response.body))
    lines = [f"HTTP/1.1 {response.status} {'OK' if response.status == 200 else 'Failed'}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
    is_cut = response.end == "cut"
    if response.events is None:
        writer.write(response.body[: len(response.body) // 2] if is_cut else response.body)
    else:
        count = len(response.events)
        for event in response.events[: count // 2 if is_cut else count]:
            writer.write(b"%x\r\n%s\r\n" % (len(event), event))
        if not is_cut:
            writer.write(b"0\r\n\r\n")
    await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close so that the client sees a reset, not an end."""
    raw = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _converse(
    handle: Handle, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    try:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while (request := await _read(reader)) is not None:
                response = await handle(request)
                if response.end == "hang":
                    await reader.read(1)  # until the client leaves
                    return
                if response.end == "reset":
                    _reset(writer)
                    return
                await _write(writer, response)
                if response.end == "cut":
                    return
    finally:
        writer.close()


async def listen(handle: Handle, port: int = 0) -> asyncio.Server:
    """A server on loopback; port 0 for any that is free."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.CancelledError):  # the server is closed
            await _converse(handle, reader, writer)

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
