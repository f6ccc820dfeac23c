"""The same trace on an engine in this process. Prints latencies as JSON.

python -m benchmarks.serve.clients.in_process MODEL POLICY TRACE whole|rows ARRIVALS

Each relQuery is one job, or each of its rows is. ARRIVALS: when they are submitted, as the other
client writes it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import relquery as rq
from relquery.backends.remote.process import settle
from relquery.config import PolicyName
from relquery.prompt import Role, Span
from relquery.traces.trace import TracedQuery, load


def main(model: str, policy: str, trace: str, mode: str, arrivals: str) -> dict[str, Any]:
    """The latency of each job in seconds, in the order of arrival, and processor seconds."""
    asked = list(_asked(load(Path(trace)), mode, Path(arrivals)))
    with rq.Engine(model, policy=cast(PolicyName, policy)) as engine:
        asked[0].submit(engine, "warm-up").result()
        settle()  # as the process of a server's engine does
        used, begin = time.process_time(), time.perf_counter()
        late, jobs = [], []
        for each in asked:
            time.sleep(max(0.0, begin + each.arrival - time.perf_counter()))
            late.append(time.perf_counter() - begin - each.arrival)
            jobs.append(each.submit(engine, each.name))
        for job in jobs:
            job.result()
        seconds = time.perf_counter() - begin
        latencies = [
            wait + (0.0 if job.latency is None else job.latency.total)
            for wait, job in zip(late, jobs, strict=True)
        ]
        cpu = time.process_time() - used
        return {"latencies": latencies, "seconds": seconds, "cpu": cpu}


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is submitted at once. name: of its relQuery, None where that is all of it."""

    arrival: float
    prompts: tuple[str, ...]
    max_tokens: int
    name: str | None = None
    rows: int = 0

    def submit(self, engine: rq.Engine, name: str | None) -> rq.Job:
        """As a job."""
        prompts = [(Span(prompt, Role.NONE),) for prompt in self.prompts]
        declared: dict[str, Any] = {"relquery": name, "rows": self.rows} if self.rows else {}
        return engine.submit(prompts, max_tokens=self.max_tokens, **declared)


def _asked(queries: list[TracedQuery], mode: str, arrivals: Path) -> Iterator[_Asked]:
    for arrival, name, row in sorted(json.loads(arrivals.read_text(encoding="utf-8"))):
        query = queries[int(name)]
        if mode == "whole":
            yield _Asked(arrival, tuple(query.prompts), query.output_limit)
        else:
            prompt = query.instruction + query.rows[row]
            yield _Asked(arrival, (prompt,), query.output_limit, name, len(query.rows))


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
