"""Random problems for the searches of `tree`, and what any schedule of one must keep."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from relquery._native import Trie
from relquery.arrays import Int32s, Int64s
from relquery.reordering.solvers.problem import Objective, Problem, pose

WORTH = [0, 1, 2, 5, 9, 30]
OBJECTIVES = [
    Objective(),
    Objective(start=3, minimum=4, granularity=3, read=0.9),
    Objective(minimum=6, read=0.9, write=0.25),
    Objective(start=2, granularity=4, read=0.5),
]


@st.composite
def problems(
    draw: st.DrawFn,
    max_rows: int = 12,
    max_slots: int = 5,
    *,
    bag: bool = False,
    worth: Sequence[int] = WORTH,
) -> Problem:
    """Few values, some worth nothing. bag: all slots but the first are one, copies apart."""
    slots, rows = draw(st.integers(1, max_slots)), draw(st.integers(1, max_rows))
    values = draw(st.integers(1, 5))
    row = st.lists(st.integers(0, values - 1), min_size=slots, max_size=slots)
    cells = draw(st.lists(row, min_size=rows, max_size=rows))
    bags = [min(slot, 1) if bag else slot for slot in range(slots)]
    items = number(cells, bags)
    count = int(items.max()) + 1
    weights = draw(st.lists(st.sampled_from(worth), min_size=count, max_size=count))
    return posed(items, bags, weights)


def random_problem(seed: int, rows: int, slots: int, values: int) -> Problem:
    """Values of every slot are skewed: the first is in a row of three or so."""
    rng = np.random.default_rng(seed)
    cells = np.minimum(rng.geometric(0.3, (rows, slots)) - 1, values - 1)
    items = number(cells.tolist(), range(slots))
    return posed(items, range(slots), rng.integers(1, 50, int(items.max()) + 1))


def number(cells: Sequence[Sequence[Hashable]], bags: Sequence[int]) -> Int32s:
    """(m, n): the same item for the same value of a slot or bag; a second copy is another."""
    known: dict[tuple[int, Hashable, int], int] = {}
    rows = []
    for row in cells:
        keys: list[tuple[int, Hashable, int]] = []
        for bag, value in zip(bags, row, strict=True):
            keys.append((bag, value, sum(key[:2] == (bag, value) for key in keys)))
        rows.append([known.setdefault(key, len(known)) for key in keys])
    return np.array(rows, np.int32).reshape(len(cells), len(bags)).T.copy()


def posed(items: Int32s, bags: Sequence[int], weights: Sequence[int] | Int64s) -> Problem:
    nothing = np.zeros((len(items), len(items)), np.bool_)
    return pose(items, np.array(bags, np.int32), np.array(weights, np.int64), nothing)


ROOT, NONE = 0, -1


class Structure(NamedTuple):
    """Nodes of a trie by number, their labels (nodes, m), the leaf of each row, and free nodes."""

    parent: Int64s
    children: Int64s
    only: Int64s
    begin: Int64s
    end: Int64s
    label: Int32s
    leaf: Int64s
    free: Int64s

    @classmethod
    def of(cls, trie: Trie) -> Structure:
        return cls(*trie.structure())

    def rows_below(self) -> list[int]:
        """By node."""
        count = [0] * len(self.parent)
        for leaf in self.leaf.tolist():
            node = leaf
            while node != ROOT:
                count[node] += 1
                node = int(self.parent[node])
        return count

    def label_of(self, node: int) -> Int32s:
        return self.label[node, self.begin[node] : self.end[node]]

    def worth(self, weights: Int64s) -> int:
        """Per node, rows below but one x weight of the label."""
        below = enumerate(self.rows_below())
        return sum(int(weights[self.label_of(n)].sum()) * max(rows - 1, 0) for n, rows in below)


def new_trie(problem: Problem) -> Trie:
    return Trie(problem.items, problem.weights, problem.stopped)


def sequences(items: Int32s, rows: Int64s, slots: Int32s) -> list[list[int]]:
    """Items in the order sent; slots: by row id. Fails unless each is sent once."""
    assert sorted(rows.tolist()) == list(range(items.shape[1]))
    assert slots.shape == items.T.shape
    assert (np.sort(slots, axis=1) == np.arange(len(items))).all()
    return [items[slots[row], row].tolist() for row in rows]


def cached(objective: Objective, prefix: float) -> float:
    """How much of a prefix a cache can hold: whole steps above the minimum."""
    steps = (prefix + objective.start - objective.minimum) // objective.granularity
    return objective.minimum + steps * objective.granularity if steps >= 0 else 0.0


def worth_of_group(objective: Objective, begin: float, end: float, rows: int) -> float:
    """What rows gain by sharing a prefix from `begin` to `end`; nothing if it does not pay."""
    saved = (rows - 1) * objective.read - objective.write
    return max(saved, 0.0) * (cached(objective, end) - cached(objective, begin)) if rows > 1 else 0


def worth_of(objective: Objective, weights: Int64s, sent: Sequence[Sequence[int]]) -> float:
    """Per run of rows that share their first items: what the last of these is worth to them."""
    total = 0.0
    for depth in range(1, len(sent[0]) + 1 if sent else 1):
        for begin, run in groupby(sent, key=lambda row: tuple(row[:depth])):
            weight = [float(weights[item]) for item in begin]
            total += worth_of_group(objective, sum(weight[:-1]), sum(weight), len(list(run)))
    return total
