"""How much `scripts/bench engine` measures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    layers, hidden, heads, intermediate, vocabulary: of the network. prefill: prompts, and tokens of
    each. batches: requests that decode together. start, steps: tokens before decoding, and of it.
    shared, own: tokens of a context that the largest batch shares, and of the rest of each prompt.
    hot, new: tokens of a prompt that are cached, and that are not. rows: of Movies. rounds: in
    which each job is measured. seconds: for which each part of a forward
    pass is repeated at once.
    """

    layers: int = 8
    hidden: int = 512
    heads: int = 8
    intermediate: int = 2_048
    vocabulary: int = 8_192
    prefill: tuple[int, int] = (16, 1_024)
    batches: tuple[int, ...] = (1, 16, 64)
    start: int = 64
    steps: int = 64
    shared: int = 1_024
    own: int = 64
    hot: int = 5_000
    new: int = 30
    rows: int = 1_500
    rounds: int = 5
    seconds: float = 0.05


FULL = Sizes()
QUICK = Sizes(
    layers=2,
    hidden=128,
    heads=2,
    intermediate=512,
    vocabulary=1_024,
    prefill=(2, 128),
    batches=(1, 4),
    steps=8,
    shared=128,
    hot=500,
    rows=20,
    rounds=2,
    seconds=0.01,
)


def choose(quick: bool) -> Sizes:
    """The sizes of a quick or a full run."""
    return QUICK if quick else FULL
