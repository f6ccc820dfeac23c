"""Requests that end in every way: answered, cancelled, cut off, malformed. Prints JSON.

python -m benchmarks.serve.clients.storm PORT MODEL REQUESTS SEED
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from typing import Any

AT_ONCE = 50
_BAD: tuple[bytes, ...] = (
    b"{",
    b"[]",
    b"null",
    b'{"model": "MODEL"}',
    b'{"model": "other", "messages": [{"role": "user", "content": "x"}]}',
    b'{"model": "MODEL", "messages": []}',
    b'{"model": "MODEL", "messages": [{"role": "user", "content": 1}]}',
    b'{"model": "MODEL", "messages": [{"role": "user", "content": "x"}], "max_tokens": -1}',
    b'{"model": "MODEL", "messages": [{"role": "user", "content": "\xff"}]}',
    b'{"model": "MODEL", "messages": [{"role": "user", "content": "x"}], "temperature": 1e400}',
)


async def main(port: str, model: str, requests: str, seed: str) -> dict[str, Any]:
    """How often each status came, and each way of leaving was taken."""
    draw, seen = random.Random(int(seed)), Counter[str]()
    seats = asyncio.Semaphore(AT_ONCE)

    async def one(plan: random.Random) -> None:
        async with seats:
            seen[await _ask(int(port), model, plan)] += 1

    plans = [random.Random(draw.random()) for _ in range(int(requests))]
    await asyncio.gather(*map(one, plans))
    return dict(seen)


async def _ask(port: int, model: str, draw: random.Random) -> str:
    """Send one request; returns its status, or how it was left."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        request, is_valid = _request(model, draw)
        kind = draw.choice(("whole", "whole", "half", "leave", "midst"))
        if kind == "half":  # the connection is closed before the request is whole
            writer.write(request[: draw.randrange(1, len(request))])
            await writer.drain()
            return "half a request"
        writer.write(request)
        await writer.drain()
        if kind == "leave":
            await asyncio.sleep(draw.random() * 0.05)
            return "left before the answer"
        status = (await reader.readline())[9:12].decode()
        if kind == "midst" and is_valid:
            for _ in range(draw.randrange(1, 20)):
                if not await reader.readline():
                    break
            return "left in the midst"
        await reader.read()
        return status
    finally:
        if draw.random() < 0.5:
            writer.transport.abort()
        writer.close()


def _request(model: str, draw: random.Random) -> tuple[bytes, bool]:
    """A request, and whether the server should answer it."""
    is_valid = draw.random() < 0.8
    if is_valid:
        path = "/v1/chat/completions"
        body = json.dumps(
            {
                "model": model,
                "messages": [{"role": "user", "content": "word " * draw.randrange(1, 200)}],
                "max_tokens": draw.randrange(1, 60),
                "temperature": draw.choice((0, 1)),
                "stream": draw.random() < 0.5,
                "n": draw.choice((1, 1, 3)),
            }
        ).encode()
    else:
        path = draw.choice(("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/no"))
        body = draw.choice(_BAD).replace(b"MODEL", model.encode())
    head = (
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body, is_valid


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
