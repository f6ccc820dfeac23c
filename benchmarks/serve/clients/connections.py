"""Connections that stay open, and little else: a client must not take the time of the server."""

from __future__ import annotations

import asyncio
import json
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

Opened = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Reply(NamedTuple):
    """headers: by their names, which uvicorn writes in lower case."""

    headers: dict[str, str]
    body: Any


class Connections:
    """Connections to one server, each with one request at a time.

    most: that are open at once; requests wait for one.
    """

    def __init__(self, url: str, most: int) -> None:
        address = urlsplit(url)
        assert address.hostname is not None
        self._host, self._port = address.hostname, address.port or 80
        self._seats = asyncio.Semaphore(most)
        self._idle: list[Opened] = []

    async def post(self, path: str, body: Any) -> Reply:
        """Send JSON and read JSON. Raises RuntimeError for a status other than 200."""
        content = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nhost: {self._host}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(content)}\r\n\r\n"
        )
        async with self._seats:
            opened = self._idle.pop() if self._idle else await self._open()
            reader, writer = opened
            writer.write(head.encode() + content)
            status, _, rest = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")
            headers = dict(line.split(": ", 1) for line in rest.decode().rstrip().split("\r\n"))
            answer = await reader.readexactly(int(headers["content-length"]))
            self._idle.append(opened)
        if status.split()[1] != b"200":
            raise RuntimeError(f"{status.decode()}: {answer.decode()}")
        return Reply(headers, json.loads(answer))

    async def _open(self) -> Opened:
        return await asyncio.open_connection(self._host, self._port)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for _, writer in self._idle:
            writer.close()
