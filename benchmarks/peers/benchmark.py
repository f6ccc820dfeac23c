"""`scripts/bench peers`: relquery, LOTUS and Daft at eleven tasks."""

from __future__ import annotations

from benchmarks.parts import in_parts
from benchmarks.peers.compared import Again, Asked, Troubled
from benchmarks.templates import template

BENCHMARK = in_parts(
    "peers",
    "beside LOTUS and Daft at eleven tasks over the same provider: requests, tokens, rows, seconds",
    (Asked, Again, Troubled),
    file="peers.md",
    introduction=template("peers").block("introduction"),
)
