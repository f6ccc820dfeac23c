"""The same trace on an engine in this process. Prints latencies as JSON.

python -m benchmarks.serve.clients.in_process MODEL POLICY TRACE
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, cast

import relquery as rq
from relquery.config import PolicyName
from relquery.prompt import Role, Span
from relquery.traces.trace import TracedQuery, load


def main(model: str, policy: str, trace: str) -> dict[str, Any]:
    """The latency of each relQuery in seconds, in the order of the trace, and processor seconds."""
    queries = load(Path(trace))
    with rq.Engine(model, policy=cast(PolicyName, policy)) as engine:
        _submit(engine, queries[0]).result()
        used, begin = time.process_time(), time.perf_counter()
        late, jobs = [], []
        for query in queries:
            time.sleep(max(0.0, begin + query.arrival - time.perf_counter()))
            late.append(time.perf_counter() - begin - query.arrival)
            jobs.append(_submit(engine, query))
        for job in jobs:
            job.result()
        seconds = time.perf_counter() - begin
        latencies = [
            wait + (0.0 if job.latency is None else job.latency.total)
            for wait, job in zip(late, jobs, strict=True)
        ]
        cpu = time.process_time() - used
        return {"latencies": latencies, "seconds": seconds, "cpu": cpu}


def _submit(engine: rq.Engine, query: TracedQuery) -> rq.Job:
    prompts = [(Span(prompt, Role.NONE),) for prompt in query.prompts]
    return engine.submit(prompts, max_tokens=query.output_limit)


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
