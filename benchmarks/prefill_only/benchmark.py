"""`scripts/bench prefill-only`: answers that need no decode, on this machine (paper 004)."""

from __future__ import annotations

from benchmarks.parts import in_parts
from benchmarks.prefill_only.jct import JobTime
from benchmarks.prefill_only.longest_input import LongestInput
from benchmarks.prefill_only.scheduling import Scheduling
from benchmarks.prefill_only.serving.latencies import Latencies
from benchmarks.prefill_only.sql_filter import SqlFilter
from benchmarks.templates import template

WORDS = template("prefill_only")

BENCHMARK = in_parts(
    "prefill-only",
    "long inputs, queues of prompts and scored labels, without decode",
    (LongestInput, Latencies, JobTime, Scheduling, SqlFilter),
    file="prefill_only.md",
    introduction=WORDS.block("introduction"),
    scales=True,
)
