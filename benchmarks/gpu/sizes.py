"""How much `python -m benchmarks.gpu` measures."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.engine.sizes import Sizes as JobSizes
from benchmarks.spans.sizes import Sizes as SpanSizes


@dataclass(frozen=True, slots=True)
class Sizes:
    """What is measured, and for how long at most."""

    models: dict[str, str]
    """By name, the shape of each network; its weights are random."""
    seconds: dict[str, float]
    """For each network, loading it included."""
    jobs: JobSizes
    """Prompts of prefill and decode; `vocabulary` is the networks'."""
    spans: SpanSizes
    """Spans that are moved, and spans that are decoded after."""
    modules: tuple[int, int] = (8, 512)
    """How many a prompt imports, and tokens of each."""
    answer: int = 32
    """Tokens of an answer after modules; one token is measured, too."""
    rows: int = 400
    """Of the filter's table."""
    value: int = 24
    """Tokens of a field's value."""
    step_tokens: int = 8_192
    rounds: int = 5
    """At most; fewer where a part's time is over."""
    cache_tokens: int = 150_000


FULL = Sizes(
    {
        "1b": "random:layers=16,hidden=2048,heads=32,kv_heads=8,ffn=8192",
        "8b": "random:layers=32,hidden=4096,heads=32,kv_heads=8,ffn=14336",
    },
    {"1b": 190.0, "8b": 260.0},
    JobSizes(vocabulary=128_256, start=128),
    SpanSizes("", repeats=5, documents=(16,), steps=32, spans=(512, 4_096, 16_384)),
)
QUICK = Sizes(
    {"tiny": "random:layers=1,hidden=32,heads=2,kv_heads=1,ffn=64"},
    {"tiny": 200.0},
    JobSizes(
        vocabulary=320,
        prefill=(2, 6),
        batches=(2,),
        start=2,
        steps=2,
        shared=20,
        own=2,
        hot=8,
        new=2,
    ),
    SpanSizes("", repeats=1, documents=(2,), document_tokens=4, steps=1, spans=(8,)),
    modules=(2, 8),
    answer=3,
    rows=3,
    value=2,
    step_tokens=512,
    rounds=1,
    cache_tokens=2_048,
)
