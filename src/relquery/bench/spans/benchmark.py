"""`relquery bench spans`: what span queries gain over the same prompts as ordinary text."""

from __future__ import annotations

from relquery.bench.parts import in_parts
from relquery.bench.spans import words
from relquery.bench.spans.parts.bulks import Bulks
from relquery.bench.spans.parts.documents import Documents
from relquery.bench.spans.parts.locality import Locality
from relquery.bench.spans.parts.nested import Nested
from relquery.bench.spans.parts.relocation import Relocation

BENCHMARK = in_parts(
    "spans",
    "time to first token, bulks and attention of span queries",
    (Documents, Nested, Bulks, Relocation, Locality),
    file="spans.md",
    introduction=words.INTRODUCTION,
)
