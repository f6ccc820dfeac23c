"""`scripts/bench providers`: what a provider bills, against a stand-in with its rules."""

from __future__ import annotations

from benchmarks.parts import in_parts
from benchmarks.providers.parts.bill import Bills
from benchmarks.providers.parts.faults import Failing
from benchmarks.templates import template

BENCHMARK = in_parts(
    "providers",
    "what providers bill by their rules, and what becomes of rows while they fail",
    (Bills, Failing),
    file="providers.md",
    introduction=template("providers").block("introduction"),
)
