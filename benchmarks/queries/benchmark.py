"""`scripts/bench queries`: SQL queries with LLM calls, their time, and how much they ask."""

from __future__ import annotations

from benchmarks.parts import in_parts
from benchmarks.queries.calls.part import Calls
from benchmarks.queries.constrained import Constrained
from benchmarks.queries.explain import Explain
from benchmarks.queries.groups import Groups
from benchmarks.queries.million import Million
from benchmarks.queries.paper.part import Paper
from benchmarks.templates import template

BENCHMARK = in_parts(
    "queries",
    "the queries of paper 000 on the engine; calls against an oracle; EXPLAIN against the run",
    (Paper, Calls, Explain, Groups, Million, Constrained),
    file="queries.md",
    introduction=template("queries").block("introduction"),
)
