"""All benchmarks."""

from __future__ import annotations

from relquery.bench import sql
from relquery.bench.harness import Benchmark

BENCHMARKS: tuple[Benchmark, ...] = (sql.BENCHMARK,)
