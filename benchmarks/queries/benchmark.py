"""`scripts/bench queries`: SQL queries with LLM calls, their time, and how much they ask."""

from __future__ import annotations

from benchmarks.parts import in_parts
from benchmarks.queries.parts.calls import Calls
from benchmarks.queries.parts.constrained import Constrained
from benchmarks.queries.parts.explain import Explain
from benchmarks.queries.parts.groups import Groups
from benchmarks.queries.parts.million import Million
from benchmarks.queries.parts.paper import Paper
from benchmarks.templates import template

BENCHMARK = in_parts(
    "queries",
    "the queries of paper 000 on the engine; calls against an oracle; EXPLAIN against the run",
    (Paper, Calls, Explain, Groups, Million, Constrained),
    file="queries.md",
    introduction=template("queries").block("introduction"),
)
