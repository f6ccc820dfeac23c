"""`scripts/bench accuracy`: how often small models are right, and what changes it."""

from __future__ import annotations

from benchmarks.accuracy.part import Gemma3, SmolLM2
from benchmarks.accuracy.variants import BASE_FORM, GUARD
from benchmarks.parts import in_parts
from benchmarks.templates import template
from relquery.config import QueryConfig

BENCHMARK = in_parts(
    "accuracy",
    "right answers of small models by order, guard, form of prompts and number format",
    (SmolLM2, Gemma3),
    file="accuracy.md",
    introduction=template("accuracy").block(
        "introduction", form=BASE_FORM, order=QueryConfig().order, guard=GUARD
    ),
)
