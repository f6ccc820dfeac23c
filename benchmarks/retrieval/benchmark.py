"""`scripts/bench retrieval`: passages for questions, indexes, and joins by blocking."""

from __future__ import annotations

from benchmarks.parts import in_parts
from benchmarks.retrieval.index import Index
from benchmarks.retrieval.join import Join
from benchmarks.retrieval.t5.part import T5
from benchmarks.templates import template

BENCHMARK = in_parts(
    "retrieval",
    "paper 000's T5 over SQuAD on the engine; an index of passages; a join by blocking",
    (T5, Index, Join),
    file="retrieval.md",
    introduction=template("retrieval").block("introduction"),
)
