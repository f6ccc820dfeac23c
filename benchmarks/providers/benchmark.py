"""`scripts/bench providers`: what a provider bills, against a stand-in with its rules."""

from __future__ import annotations

from benchmarks.parts import in_parts
from benchmarks.providers.parts.bill import Bills
from benchmarks.templates import template

BENCHMARK = in_parts(
    "providers",
    "what providers bill for relquery's order and marks, by their rules",
    (Bills,),
    file="providers.md",
    introduction=template("providers").block("introduction"),
)
