"""`scripts/bench providers`: what a provider bills, against a stand-in with its rules."""

from __future__ import annotations

from benchmarks.parts import in_parts
from benchmarks.providers.parts.bill import Bills
from benchmarks.providers.parts.faults import Failing
from benchmarks.providers.parts.kills import Kills
from benchmarks.providers.parts.limits import Limits
from benchmarks.providers.parts.predicted import Predicted
from benchmarks.templates import template

BENCHMARK = in_parts(
    "providers",
    "what providers bill, their limits, and what becomes of rows when they or we fail",
    (Bills, Predicted, Limits, Kills, Failing),
    file="providers.md",
    introduction=template("providers").block("introduction"),
)
