"""All benchmarks."""

from __future__ import annotations

from relquery.bench import sql
from relquery.bench.harness import Benchmark
from relquery.bench.prefill_only import benchmark as prefill_only
from relquery.bench.relserve import benchmark as relserve
from relquery.bench.reorder import benchmark as reorder
from relquery.bench.spans import benchmark as spans

BENCHMARKS: tuple[Benchmark, ...] = (
    sql.BENCHMARK,
    reorder.BENCHMARK,
    spans.BENCHMARK,
    relserve.BENCHMARK,
    prefill_only.BENCHMARK,
)
