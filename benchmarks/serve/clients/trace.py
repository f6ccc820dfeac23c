"""Sends the relQueries of a trace when they arrive: whole, or row by row. Prints latencies as JSON.

python -m benchmarks.serve.clients.trace URL MODEL TRACE whole|rows ARRIVALS

ARRIVALS: a file to which is written when each request came to the engine.
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

CONNECTIONS = 1_000
"""As many as the openai package opens at most."""


async def main(url: str, model: str, trace: str, mode: str, arrivals: str) -> dict[str, Any]:
    """The latency of each relQuery in seconds, in the order of the trace."""
    queries = load(Path(trace))
    async with Connections(url, CONNECTIONS) as client:
        sender = _Sender(client, model, mode)
        await sender.send(queries[0], "warm-up")
        begin = sender.begin()

        async def follow(at: int, query: TracedQuery) -> float:
            await asyncio.sleep(begin + query.arrival - time.perf_counter())
            await sender.send(query, str(at))
            return time.perf_counter() - begin - query.arrival

        jobs = (follow(index, query) for index, query in enumerate(queries))
        latencies = await asyncio.gather(*jobs)
        seconds = time.perf_counter() - begin
    Path(arrivals).write_text(json.dumps(sender.arrivals), encoding="utf-8")
    return {"latencies": latencies, "seconds": seconds}


class _Sender:
    """arrivals: (seconds, the relQuery's name, row) of each request, as it came to the engine."""

    def __init__(self, client: Connections, model: str, mode: str) -> None:
        self._client, self._model, self._mode = client, model, mode
        self.arrivals: list[tuple[float, str, int]] = []
        self._begin = 0.0

    def begin(self) -> float:
        """What was sent before does not count."""
        self._begin = time.perf_counter()
        self.arrivals.clear()
        return self._begin

    async def send(self, query: TracedQuery, name: str) -> None:
        """Send a relQuery and wait for all of its answers."""
        prompts = list(query.prompts)
        common = {"model": self._model, "max_tokens": query.output_limit, "temperature": 0}
        if self._mode == "whole":
            await self._post({"prompt": prompts, **common}, name, 0)
            return
        declared = {"id": name, "rows": len(prompts)}
        bodies = ({"prompt": prompt, "relquery": declared, **common} for prompt in prompts)
        await asyncio.gather(*(self._post(body, name, row) for row, body in enumerate(bodies)))

    async def _post(self, body: dict[str, Any], name: str, row: int) -> None:
        answer = await self._client.post("/v1/completions", body)
        came = time.perf_counter() - self._begin
        parts = answer.headers["server-timing"].split(",")
        served = sum(float(part.partition("dur=")[2]) for part in parts) / 1e3
        self.arrivals.append((max(0.0, came - served), name, row))


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
