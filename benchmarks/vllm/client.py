"""Sends the relQueries of a trace to a vLLM server, each request by itself. Prints JSON.

python -m benchmarks.vllm.client URL TRACE
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.serve.clients.connections import Connections
from relquery.traces.trace import TracedQuery, load

CONNECTIONS = 5_000
"""More than there are requests, so that all wait at the server, where they can be reordered."""


async def main(url: str, trace: str) -> dict[str, Any]:
    """The latency of each relQuery, its answers, the seconds of all, and prompt tokens."""
    queries = load(Path(trace))
    async with Connections(url, CONNECTIONS) as client:

        async def send(query: TracedQuery, name: str) -> list[Any]:
            said = {"relquery": name, "relquery_rows": len(query.rows)}
            bodies = [
                {
                    "model": "demo",
                    "prompt": prompt,
                    "max_tokens": output,
                    "ignore_eos": True,
                    "temperature": 0,
                    "vllm_xargs": said,
                }
                for prompt, output in zip(query.prompts, query.outputs, strict=True)
            ]
            replies = await asyncio.gather(
                *(client.post("/v1/completions", body) for body in bodies)
            )
            return [reply.body for reply in replies]

        await send(queries[0], "warm-up")
        begin = time.perf_counter()

        async def follow(at: int, query: TracedQuery) -> tuple[float, list[Any]]:
            await asyncio.sleep(begin + query.arrival - time.perf_counter())
            replies = await send(query, str(at))
            return time.perf_counter() - begin - query.arrival, replies

        done = await asyncio.gather(*(follow(index, query) for index, query in enumerate(queries)))
        seconds = time.perf_counter() - begin
    replies = [reply for _, each in done for reply in each]
    return {
        "latencies": [latency for latency, _ in done],
        "seconds": seconds,
        "answers": [reply["choices"][0]["text"] for reply in replies],
        "prompt_tokens": sum(reply["usage"]["prompt_tokens"] for reply in replies),
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
