"""`scripts/bench prompt-cache`: what modules gain over the same prompts as ordinary text."""

from __future__ import annotations

from benchmarks.parts import in_parts
from benchmarks.prompt_cache.documents import Documents
from benchmarks.prompt_cache.lengths import FirstTokens
from benchmarks.prompt_cache.quality import Quality
from benchmarks.prompt_cache.schema import LargeSchema
from benchmarks.templates import template

BENCHMARK = in_parts(
    "prompt-cache",
    "time to first token of prompts whose modules are cached",
    (FirstTokens, Documents, Quality, LargeSchema),
    file="prompt_cache.md",
    introduction=template("prompt_cache").block("introduction"),
)
