"""How much `scripts/bench cpu_peers` measures."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.cpu_peers.files import Shape


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured of a network.

    formats: of its files. prefill: prompts, and tokens of each. batches: requests that decode
    together. start, steps: tokens before decoding, and of it. rows: of Movies. system, passage,
    question: tokens of a prompt with passages. passages: of each prompt. asked: such prompts.
    rounds: in which each job is measured; prefills, the longest, in `prefills`. warm: rounds before
    these, which do not count; none for prefills. cache: bytes for
    keys and values, of a side. shape: of random weights. seconds: for which the machine's limits
    are measured at once. dtypes: of our side, beside the one that peers multiply in.
    """

    formats: tuple[str, ...] = ("F16", "Q8_0", "Q4_1")
    prefill: tuple[int, int] = (16, 1_024)
    batches: tuple[int, ...] = (1, 16, 64)
    start: int = 16
    steps: int = 16
    rows: int = 64
    system: int = 64
    passage: int = 500
    question: int = 32
    passages: int = 4
    asked: int = 2
    rounds: int = 2
    prefills: int = 3
    warm: int = 0
    cache: int = 2 * 2**30
    shape: Shape | None = None
    seconds: float = 0.05
    dtypes: tuple[str, ...] = ("float32", "bfloat16")


SMOLLM2 = Sizes()
BILLION = Sizes(
    formats=("Q8_0", "Q4_1"),
    rows=16,
    passages=2,
    asked=1,
    prefills=1,
    dtypes=("bfloat16",),
    shape=Shape(layers=16, hidden=2_048, heads=32, kv_heads=8, inner=8_192),
)
QUICK = Sizes(
    formats=("F16", "Q8_0"),
    prefill=(2, 128),
    batches=(1, 4),
    steps=4,
    rows=4,
    passage=60,
    asked=2,
    rounds=1,
    cache=2**30,
    seconds=0.01,
)
QUICK_SHAPE = Shape(layers=2, hidden=256, heads=4, kv_heads=2, inner=512)
