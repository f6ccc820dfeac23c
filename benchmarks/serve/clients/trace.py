"""Sends the relQueries of a trace when they arrive: whole, or row by row. Prints latencies as JSON.

python -m benchmarks.serve.clients.trace URL MODEL TRACE whole|rows
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from relquery.traces.trace import TracedQuery, load


async def main(url: str, model: str, trace: str, mode: str) -> dict[str, Any]:
    """The latency of each relQuery in seconds, in the order of the trace."""
    queries = load(Path(trace))
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=200)
    async with httpx.AsyncClient(base_url=url, timeout=None, limits=limits) as client:
        await _send(client, model, queries[0], "warm-up", mode)
        begin = time.perf_counter()

        async def follow(at: int, query: TracedQuery) -> float:
            await asyncio.sleep(begin + query.arrival - time.perf_counter())
            await _send(client, model, query, str(at), mode)
            return time.perf_counter() - begin - query.arrival

        jobs = (follow(at, query) for at, query in enumerate(queries))
        latencies = await asyncio.gather(*jobs)
        return {"latencies": latencies, "seconds": time.perf_counter() - begin}


async def _send(
    client: httpx.AsyncClient, model: str, query: TracedQuery, name: str, mode: str
) -> None:
    prompts = list(query.prompts)
    common = {"model": model, "max_tokens": query.output_limit, "temperature": 0}
    if mode == "whole":
        bodies = [{"prompt": prompts, **common}]
    else:
        declared = {"id": name, "rows": len(prompts)}
        bodies = [{"prompt": prompt, "relquery": declared, **common} for prompt in prompts]
    answers = await asyncio.gather(*(client.post("/v1/completions", json=b) for b in bodies))
    for answer in answers:
        answer.raise_for_status()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
