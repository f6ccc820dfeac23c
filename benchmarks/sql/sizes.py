"""How much `scripts/bench sql` measures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    model: with random weights. vocabulary: of its tokenizer. rows: of the table. prompts: number
    and tokens of the prompts whose prefill is timed. steps: of decoding. shared: tokens of the
    context that requests share. wide: a network for bfloat16.
    """

    model: str = "random:layers=8,hidden=288,heads=4,ffn=1152"
    vocabulary: int = 4_096
    rows: int = 2_000
    prompts: tuple[int, int] = (16, 1_024)
    steps: int = 32
    requests: int = 64
    shared: int = 1_024
    wide: str = "random:layers=8,hidden=576,heads=9,ffn=2304"


FULL = Sizes()
QUICK = Sizes(
    rows=40, prompts=(3, 1_024), steps=6, wide="random:layers=2,hidden=576,heads=9,ffn=2304"
)


def choose(quick: bool) -> Sizes:
    """The sizes of a quick or a full run."""
    return QUICK if quick else FULL
