"""Opens many streams at once and counts what comes. Prints JSON.

python -m benchmarks.serve.clients.streams PORT MODEL STREAMS TOKENS
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from functools import partial
from itertools import pairwise
from typing import Any

_TOKEN = b'"content":"'


class Stream(asyncio.Protocol):
    """One connection: a request, and the events that come back.

    tokens: events with text, the empty one at the beginning included. arrived: when.
    """

    def __init__(self, request: bytes) -> None:
        self.tokens, self.is_whole, self.status = 0, False, b""
        self.arrived: list[float] = []
        self.over = asyncio.Event()
        self._request = request
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Count events. A chunk of the server is one event, or several whole ones."""
        self.status = self.status or data[9:12]
        tokens = data.count(_TOKEN)
        if tokens:
            self.tokens += tokens
            self.arrived.append(time.perf_counter())
        if b"[DONE]" in data:
            self.is_whole = True
            assert self._transport is not None
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The end, whoever closed it."""
        self.over.set()


async def main(port: str, model: str, streams: str, tokens: str) -> dict[str, Any]:
    """How many streams were whole, their tokens, and the gaps between them in seconds."""
    loop, opened = asyncio.get_running_loop(), []
    begin = time.perf_counter()
    for index in range(int(streams)):
        request = _request(model, index, int(tokens))
        _, stream = await loop.create_connection(partial(Stream, request), "127.0.0.1", int(port))
        opened.append(stream)
    opening = time.perf_counter() - begin
    await asyncio.gather(*(stream.over.wait() for stream in opened))
    gaps = sorted(b - a for stream in opened for a, b in pairwise(stream.arrived))
    # Tokens a second of each stream, from its first event to its last.
    paces = sorted((s.tokens - 1) / (s.arrived[-1] - s.arrived[0]) for s in opened if s.is_whole)
    least, median = (paces[0], paces[len(paces) // 2]) if paces else (0.0, 0.0)
    return {
        "opening": opening,
        "seconds": time.perf_counter() - begin,
        "whole": sum(stream.is_whole for stream in opened),
        "tokens": sum(stream.tokens - 1 for stream in opened),
        "least": min(stream.tokens - 1 for stream in opened),
        "paces": [least, median],
        "gaps": [gaps[int(len(gaps) * share)] for share in (0.5, 0.99)] + gaps[-1:],
    }


def _request(model: str, at: int, tokens: int) -> bytes:
    body = json.dumps(
        {
            "model": model,
            "messages": [{"role": "user", "content": f"Stream {at}."}],
            "max_tokens": tokens,
            "temperature": 0,
            "stream": True,
        }
    ).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
