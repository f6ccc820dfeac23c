"""`scripts/bench cascade`: the promise of a cascade, and its calls beside those of others."""

from __future__ import annotations

from benchmarks.cascade.calls import Calls
from benchmarks.cascade.promise import Heads, Promise, Tables
from benchmarks.parts import in_parts
from benchmarks.templates import template

BENCHMARK = in_parts(
    "cascade",
    "how often a cascade meets its targets; its calls beside BARGAIN's, SUPG's and LOTUS's",
    (Promise, Tables, Heads, Calls),
    file="cascade.md",
    introduction=template("cascade").block("introduction"),
)
