"""`relquery bench sql`: LLM queries over real tables, and the engine parts that they rest on."""

from __future__ import annotations

from relquery.bench.parts import in_parts
from relquery.bench.sql import words
from relquery.bench.sql.engine import Engine
from relquery.bench.sql.queries import Queries
from relquery.bench.sql.solver import Solver

BENCHMARK = in_parts(
    "sql",
    "LLM filter and projection on Movies; prefill, decode, solver",
    (Queries, Engine, Solver),
    file="sql.md",
    introduction=words.INTRODUCTION,
)
