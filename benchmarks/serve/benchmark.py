"""`scripts/bench serve`: the server through HTTP, beside the engine in process."""

from __future__ import annotations

from benchmarks.parts import in_parts
from benchmarks.serve.parts.latencies import Latencies
from benchmarks.serve.parts.overhead import Overhead
from benchmarks.serve.parts.storm import Storm
from benchmarks.serve.parts.streams import Streams
from benchmarks.templates import template

WORDS = template("serve")

BENCHMARK = in_parts(
    "serve",
    "the server through HTTP, beside the engine in process",
    (Overhead, Latencies, Streams, Storm),
    file="serve.md",
    introduction=WORDS.block("introduction"),
)
