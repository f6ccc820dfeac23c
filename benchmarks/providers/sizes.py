"""How much `scripts/bench providers` measures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """rows: of Movies with each value five times. real: of the other tables; None for all.

    failing: rows of a query whose provider fails.
    """

    rows: int = 2_000
    real: int | None = None
    failing: int = 200


FULL = Sizes()
QUICK = Sizes(rows=200, real=200, failing=50)


def choose(quick: bool) -> Sizes:
    """The sizes of a quick or a full run."""
    return QUICK if quick else FULL
