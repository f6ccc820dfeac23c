"""All benchmarks."""

from __future__ import annotations

from benchmarks.accuracy import benchmark as accuracy
from benchmarks.cascade import benchmark as cascade
from benchmarks.cpu_peers import benchmark as cpu_peers
from benchmarks.engine import benchmark as engine
from benchmarks.harness import Benchmark
from benchmarks.peers import benchmark as peers
from benchmarks.prefill_only import benchmark as prefill_only
from benchmarks.prompt_cache import benchmark as prompt_cache
from benchmarks.providers import benchmark as providers
from benchmarks.queries import benchmark as queries
from benchmarks.redact import benchmark as redact
from benchmarks.relserve import benchmark as relserve
from benchmarks.reorder import benchmark as reorder
from benchmarks.retrieval import benchmark as retrieval
from benchmarks.sembench import benchmark as sembench
from benchmarks.serve import benchmark as serve
from benchmarks.spans import benchmark as spans
from benchmarks.spark import benchmark as spark
from benchmarks.sql import benchmark as sql
from benchmarks.vllm import benchmark as vllm

BENCHMARKS: tuple[Benchmark, ...] = (
    engine.BENCHMARK,
    cpu_peers.BENCHMARK,
    sql.BENCHMARK,
    queries.BENCHMARK,
    reorder.BENCHMARK,
    retrieval.BENCHMARK,
    redact.BENCHMARK,
    providers.BENCHMARK,
    spans.BENCHMARK,
    relserve.BENCHMARK,
    serve.BENCHMARK,
    spark.BENCHMARK,
    vllm.BENCHMARK,
    peers.BENCHMARK,
    prefill_only.BENCHMARK,
    prompt_cache.BENCHMARK,
    accuracy.BENCHMARK,
    cascade.BENCHMARK,
    sembench.BENCHMARK,
)
