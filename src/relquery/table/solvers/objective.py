"""What sharing a prefix is worth: the sum that `tree` maximises.

Rows that share a prefix form a group. Every row of the group gains the same, except the first,
which computes (and, with some providers, pays to write) the prefix.
"""

from __future__ import annotations

from typing import NamedTuple

from relquery.arrays import Int32s, Int64s
from relquery.table.compiled import compiled


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


@compiled
def is_plain(objective: Objective) -> bool:
    """Whether every shared unit is worth the same at any position."""
    return objective.minimum == 0 and objective.granularity == 1 and objective.write == 0


@compiled
def worth(objective: Objective, begin: float, end: float, rows: int) -> float:
    """What `rows` rows gain by sharing a prefix from weight `begin` to `end`.

    0 for one row. Also 0 if writing costs more than reading saves, as the prefix is then not
    written.
    """
    each = (rows - 1) * objective.read - objective.write
    if rows < 2 or each <= 0:
        return 0.0
    return each * (cached(objective, end) - cached(objective, begin))


@compiled
def cached(objective: Objective, prefix: float) -> float:
    """How much of a prefix a cache can hold. prefix: its weight, without `start`."""
    whole = prefix + objective.start
    if whole < objective.minimum:
        return 0.0
    return whole - (whole - objective.minimum) % objective.granularity


@compiled
def total_worth(
    objective: Objective, weights: Int64s, items: Int32s, rows: Int64s, fields: Int32s
) -> float:
    """What a schedule is worth if the rows of each group are adjacent.

    items: (m, n), the item in each column of each row. fields: (n, m), by position.
    """
    slots = fields.shape[1]
    total = 0.0
    open_at = [0 for _ in range(0)]  # start of each run of rows that share one more item
    ends = [0.0 for _ in range(0)]  # weight of the prefix up to that item
    for i in range(len(rows) + 1):
        shared = 0
        if 0 < i < len(rows):
            while shared < slots and (
                items[fields[i, shared], rows[i]] == items[fields[i - 1, shared], rows[i - 1]]
            ):
                shared += 1
        while len(ends) > shared:
            end = ends.pop()
            begin = ends[-1] if ends else 0.0
            total += worth(objective, begin, end, i - open_at.pop())
        while len(ends) < shared:
            item = items[fields[i, len(ends)], rows[i]]
            ends.append((ends[-1] if ends else 0.0) + weights[item])
            open_at.append(i - 1)
    return total
