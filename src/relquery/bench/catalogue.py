"""All benchmarks."""

from __future__ import annotations

from relquery.bench.harness import Benchmark
from relquery.bench.prefill_only import benchmark as prefill_only
from relquery.bench.relserve import benchmark as relserve
from relquery.bench.reorder import benchmark as reorder
from relquery.bench.spans import benchmark as spans
from relquery.bench.sql import benchmark as sql

BENCHMARKS: tuple[Benchmark, ...] = (
    sql.BENCHMARK,
    reorder.BENCHMARK,
    spans.BENCHMARK,
    relserve.BENCHMARK,
    prefill_only.BENCHMARK,
)
