"""`scripts/bench vllm`: policies of relquery inside a vLLM server."""

from __future__ import annotations

from benchmarks.parts import in_parts
from benchmarks.templates import template
from benchmarks.vllm.parts.policies import Policies

BENCHMARK = in_parts(
    "vllm",
    "latencies of relQueries in a vLLM server, with its own scheduler and with a policy of ours",
    (Policies,),
    file="vllm.md",
    introduction=template("vllm").block("introduction"),
)
