"""`scripts/bench relserve`: the gain of schedulers that know whole relQueries (paper 003)."""

from __future__ import annotations

from benchmarks.parts import in_parts
from benchmarks.relserve.engine import Engine
from benchmarks.relserve.fresh_rows import FreshRows
from benchmarks.relserve.published import Published
from benchmarks.relserve.scheduling import Scheduling
from benchmarks.relserve.shared_rows import SharedRows
from benchmarks.templates import template

WORDS = template("relserve")

BENCHMARK = in_parts(
    "relserve",
    "latencies of relQueries under scheduling policies",
    (SharedRows, FreshRows, Published, Engine, Scheduling),
    file="relserve.md",
    introduction=WORDS.block("introduction"),
)
