"""How much `scripts/bench cascade` measures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    draws: int = 500
    """Of each cell whose promise is tested."""
    compared: int = 10
    """Of each cell whose calls are compared."""
    rows: int = 2_000
    """Of a real table, at most."""
    share: float = 1.0
    """Of the sizes of made-up cases."""


FULL = Sizes()
QUICK = Sizes(draws=40, compared=3, rows=300, share=0.3)


def choose(quick: bool) -> Sizes:
    """The sizes of a quick or a full run."""
    return QUICK if quick else FULL
