"""How much `scripts/bench providers` measures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """rows: of Movies with each value five times. real: of the other tables.

    predicted: rows of each table whose bill is foretold. limited: calls through limits. failing:
    rows of a query whose provider fails. kills: processes killed, of each kind.
    """

    rows: int = 2_000
    real: int = 500
    predicted: int = 600
    limited: int = 20_000
    failing: int = 200
    kills: int = 10


FULL = Sizes()
QUICK = Sizes(rows=200, real=200, predicted=120, limited=1_500, failing=50, kills=2)


def choose(quick: bool) -> Sizes:
    """The sizes of a quick or a full run."""
    return QUICK if quick else FULL
