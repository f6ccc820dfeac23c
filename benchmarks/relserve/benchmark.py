"""`scripts/bench relserve`: what schedulers gain that know whole relQueries (paper 003)."""

from __future__ import annotations

from benchmarks.parts import in_parts
from benchmarks.relserve import words
from benchmarks.relserve.parts.fresh_rows import FreshRows
from benchmarks.relserve.parts.on_engine import Engine
from benchmarks.relserve.parts.scheduling import Scheduling
from benchmarks.relserve.parts.shared_rows import SharedRows

BENCHMARK = in_parts(
    "relserve",
    "latencies of relQueries under scheduling policies",
    (SharedRows, FreshRows, Engine, Scheduling),
    file="relserve.md",
    introduction=words.INTRODUCTION,
)
