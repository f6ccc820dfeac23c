"""`scripts/bench vllm`: relquery's policies, order and spans inside vLLM."""

from __future__ import annotations

from benchmarks.parts import in_parts
from benchmarks.templates import template
from benchmarks.vllm.filtering import Filtering
from benchmarks.vllm.policies import Policies
from benchmarks.vllm.spans import Spans

BENCHMARK = in_parts(
    "vllm",
    "in vLLM: policies of ours beside its own scheduler, a filter in process, spans",
    (Policies, Filtering, Spans),
    file="vllm.md",
    introduction=template("vllm").block("introduction"),
)
