"""What sharing a prefix is worth: the sum that `tree` maximises.

Rows that share a prefix form a group. Every row of the group gains the same, except the first,
which computes (and, with some providers, pays to write) the prefix.
"""

from __future__ import annotations

from typing import NamedTuple


class Objective(NamedTuple):
    """start: weight of the text before the fields of every row.

    minimum, granularity: a prefix below `minimum` is not cached; above it, whole steps of
        `granularity` are. read: saving per unit of weight read from the cache. write: extra cost
        per unit written, compared with only computing it.
    """

    start: int = 0
    minimum: int = 0
    granularity: int = 1
    read: float = 1.0
    write: float = 0.0


def is_plain(objective: Objective) -> bool:
    """Whether every shared unit is worth the same at any position."""
    return objective.minimum == 0 and objective.granularity == 1 and objective.write == 0
