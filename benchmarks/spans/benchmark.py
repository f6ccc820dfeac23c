"""`scripts/bench spans`: what span queries gain over the same prompts as ordinary text."""

from __future__ import annotations

from benchmarks.parts import in_parts
from benchmarks.spans.bulk import Bulks
from benchmarks.spans.documents import Documents
from benchmarks.spans.needles import Locality
from benchmarks.spans.nested import Nested
from benchmarks.spans.relocation import Relocation
from benchmarks.templates import template

WORDS = template("spans")

BENCHMARK = in_parts(
    "spans",
    "time to first token, bulks and attention of span queries",
    (Documents, Nested, Bulks, Relocation, Locality),
    file="spans.md",
    introduction=WORDS.block("introduction"),
)
