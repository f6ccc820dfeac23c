"""`scripts/bench engine`: the engine beside vLLM on a CPU, and beside the machine's limit."""

from __future__ import annotations

from benchmarks.engine.beside import Beside
from benchmarks.engine.limit import Limit
from benchmarks.parts import in_parts
from benchmarks.templates import template

BENCHMARK = in_parts(
    "engine",
    "the engine beside vLLM on the same CPU, and beside the machine's limit",
    (Beside, Limit),
    file="engine.md",
    introduction=template("engine").block("introduction"),
)
