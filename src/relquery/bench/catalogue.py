"""All benchmarks."""

from __future__ import annotations

from relquery.bench import prefill_only, relserve, reorder, spans, sql
from relquery.bench.harness import Benchmark

BENCHMARKS: tuple[Benchmark, ...] = (
    sql.BENCHMARK,
    reorder.BENCHMARK,
    spans.BENCHMARK,
    relserve.BENCHMARK,
    prefill_only.BENCHMARK,
)
