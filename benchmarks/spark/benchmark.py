"""`scripts/bench spark`: a million rows, and a lost executor."""

from __future__ import annotations

from benchmarks.parts import in_parts
from benchmarks.spark.million import Million
from benchmarks.templates import template

BENCHMARK = in_parts(
    "spark",
    "a million rows over Spark with an executor killed",
    (Million,),
    file="spark.md",
    introduction=template("spark").block("introduction"),
)
