"""`relquery bench relserve`: what schedulers gain that know whole relQueries (paper 003)."""

from __future__ import annotations

from relquery.bench.parts import in_parts
from relquery.bench.relserve import words
from relquery.bench.relserve.parts.fresh_rows import FreshRows
from relquery.bench.relserve.parts.on_engine import Engine
from relquery.bench.relserve.parts.scheduling import Scheduling
from relquery.bench.relserve.parts.shared_rows import SharedRows

BENCHMARK = in_parts(
    "relserve",
    "latencies of relQueries under scheduling policies",
    (SharedRows, FreshRows, Engine, Scheduling),
    file="relserve.md",
    introduction=words.INTRODUCTION,
)
