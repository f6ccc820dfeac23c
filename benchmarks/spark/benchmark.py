"""`scripts/bench spark`: a million rows, a lost executor, and what larger tables would take."""

from __future__ import annotations

from benchmarks.parts import in_parts
from benchmarks.spark.parts.growth import Growth
from benchmarks.spark.parts.million import Million
from benchmarks.templates import template

BENCHMARK = in_parts(
    "spark",
    "a million rows over Spark with an executor killed, and plans for tables up to 10⁹ rows",
    (Million, Growth),
    file="spark.md",
    introduction=template("spark").block("introduction"),
)
