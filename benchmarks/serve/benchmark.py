"""`scripts/bench serve`: the server through HTTP, beside the engine in process."""

from __future__ import annotations

from benchmarks.parts import in_parts
from benchmarks.serve.latencies import Latencies
from benchmarks.serve.overhead import Overhead
from benchmarks.serve.storm import Storm
from benchmarks.serve.streams import Streams
from benchmarks.templates import template

WORDS = template("serve")

BENCHMARK = in_parts(
    "serve",
    "the server through HTTP, beside the engine in process",
    (Overhead, Latencies, Streams, Storm),
    file="serve.md",
    introduction=WORDS.block("introduction"),
)
