"""`scripts/bench providers`: what a provider bills, against a stand-in with its rules."""

from __future__ import annotations

from benchmarks.parts import in_parts
from benchmarks.providers.bill import Bills
from benchmarks.providers.faults import Failing
from benchmarks.providers.kills import Kills
from benchmarks.providers.limits import Limits
from benchmarks.providers.predicted import Predicted
from benchmarks.templates import template

BENCHMARK = in_parts(
    "providers",
    "what providers bill, their limits, and what becomes of rows when they or we fail",
    (Bills, Predicted, Limits, Kills, Failing),
    file="providers.md",
    introduction=template("providers").block("introduction"),
)
