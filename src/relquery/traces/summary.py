"""Statistics of a run: latencies and their parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relquery.traces.simulate import Run


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean, median, 99th percentile and maximum, in seconds."""

    mean: float
    p50: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of at least one value; percentiles are interpolated."""
        p50, p99 = np.percentile(values, [50, 99]).tolist()
        return cls(float(np.mean(values)), p50, p99, max(values))


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in numbers.

    total: latencies of relQueries; waiting, core, tail: their parts (paper 003, eq. 2).
    relqueries, requests: their number. failed: requests without an answer. seconds: from the
    start of the trace to the last answer.
    hit_rate: share of prompt tokens served from the cache. tokens_per_second: prompts and answers.
    """

    total: Spread
    waiting: Spread
    core: Spread
    tail: Spread
    relqueries: int
    requests: int
    failed: int
    seconds: float
    hit_rate: float
    tokens_per_second: float


def summarize(run: Run) -> Summary:
    """The numbers of a run of at least one relQuery."""
    outcomes = run.outcomes
    latencies = [outcome.latency for outcome in outcomes]
    prompts = sum(outcome.prompt_tokens for outcome in outcomes)
    outputs = sum(outcome.output_tokens for outcome in outcomes)
    return Summary(
        total=Spread.of([latency.total for latency in latencies]),
        waiting=Spread.of([latency.waiting for latency in latencies]),
        core=Spread.of([latency.core for latency in latencies]),
        tail=Spread.of([latency.tail for latency in latencies]),
        relqueries=len(outcomes),
        requests=sum(len(outcome.query.rows) for outcome in outcomes),
        failed=sum(outcome.failed for outcome in outcomes),
        seconds=run.seconds,
        hit_rate=sum(outcome.cached_tokens for outcome in outcomes) / max(prompts, 1),
        tokens_per_second=(prompts + outputs) / run.seconds if run.seconds else 0.0,
    )
