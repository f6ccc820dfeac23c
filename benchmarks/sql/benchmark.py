"""`scripts/bench sql`: LLM queries over real tables, and the engine parts that they rest on."""

from __future__ import annotations

from benchmarks.parts import in_parts
from benchmarks.sql.engine import Engine
from benchmarks.sql.path import Statements
from benchmarks.sql.queries import Queries
from benchmarks.sql.solver import Solver
from benchmarks.templates import template

WORDS = template("sql")

BENCHMARK = in_parts(
    "sql",
    "LLM filter and projection on Movies; the path of a statement; prefill, decode, solver",
    (Queries, Statements, Engine, Solver),
    file="sql.md",
    introduction=WORDS.block("introduction"),
)
