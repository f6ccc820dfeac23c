"""`scripts/bench cpu_peers`: GGUF files on our engine, llama.cpp and OpenVINO GenAI."""

from __future__ import annotations

from benchmarks.cpu_peers.beside import Billion, Smollm2
from benchmarks.parts import in_parts
from benchmarks.templates import template

BENCHMARK = in_parts(
    "cpu_peers",
    "GGUF files beside llama.cpp and OpenVINO GenAI on the same CPU: prefill, decode, a filter",
    (Smollm2, Billion),
    file="cpu_peers.md",
    introduction=template("cpu_peers").block("introduction"),
)
