"""Improves schedules of small tables, node by node in the lattice of what rows share.

The tree of a schedule becomes a tree of the lattice. Nodes are opened and closed while that gains.
Then some nodes are closed at random, and the improvement starts again. A tree from dual ascent is
also tried, because its bound sometimes shows that nothing better exists. In a lattice of few nodes,
branch and bound finds the best tree faster than random closing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from relquery._native import Graph, common_prefix, improve
from relquery.arrays import Bools, Int32s, Int64s
from relquery.errors import ConfigError
from relquery.reordering.items import Beginnings
from relquery.reordering.solvers.lattice import MOST_NODES, Lattice, build_lattice, whole_numbers
from relquery.reordering.solvers.ophr import MOST_ROWS, walk
from relquery.reordering.solvers.problem import Order, go_on
from relquery.reordering.solvers.search import LatticeTree, cheapest_tree

STEPS_PER_SECOND = 8e7  # pairs of nodes looked at
STEPS_PER_NODE = 2000  # cost of building a lattice
STEPS_PER_PAIR = 1.5  # setup cost of dual ascent per pair of nodes
STEPS_PER_ARC = 80  # cost of branch and bound per arc of a small lattice
MOST_BRANCHED = 300  # nodes of a lattice for branch and bound
MOST_FAILURES = 20  # consecutive random closings without improvement
MOST_CLOSED = 12  # nodes closed at random
LEAST_GAIN = 1e-4  # of what is shared; less is not worth a search


def polish(
    items: Int32s,
    weights: Int64s,
    texts: Beginnings | None,
    sent: tuple[Int64s, npt.NDArray[np.integer]],
    seconds: float,
    stopped: Bools,
) -> Order | None:
    """A schedule worth more than the given one; None if the table is too large, or the schedule
    is the best one but for LEAST_GAIN.

    items: (m, n). sent: rows, and by position the columns of each in the order sent. seconds: the
    approximate time limit. stopped: see `problem`.
    """
    steps = int(seconds * STEPS_PER_SECOND)
    most = min(MOST_NODES, steps // STEPS_PER_NODE)
    if not (2 <= items.shape[1] <= MOST_ROWS and most):
        return None
    weights = whole_numbers(items, weights)
    try:
        lattice = build_lattice(items, weights, texts, most)
    except ConfigError:
        return None
    steps -= STEPS_PER_NODE * len(lattice.weight)
    rows, fields = sent
    in_order = items[fields, rows[:, None]]
    shared = _shared(in_order, weights, texts)
    before = int(lattice.weight[lattice.row].sum() - lattice.weight[0]) - shared
    least = LEAST_GAIN * shared
    search = _Search.within(lattice, steps, least, stopped)
    search.bound = least_cost(items, weights, texts) - int(lattice.weight[0])
    if before - search.bound <= least:
        return None
    opened = _open_as_sent(lattice, rows, in_order, texts)
    others = search.ascend(opened)
    if before - search.bound <= least:
        return None
    search.start(opened)
    if others is not None:
        search.start(others)
    search.branch()
    search.close_at_random()
    if before - search.best.cost <= least:
        return None
    return walk(items, lattice, search.best, texts)


def least_cost(items: Int32s, weights: Int64s, texts: Beginnings | None) -> int:
    """What a tree costs at least: each distinct beginning of an item, once.

    items: (m, n). Without texts, items of a single row count nothing, as in the lattice. The bound
    is met where columns are nested, as the descriptions of films and their reviews.
    """
    used, counts = np.unique(items, return_counts=True)
    if texts is None:
        return int(weights[used[counts > 1]].sum())
    cost = int(weights[used].sum())
    if len(used) == 1:
        return cost
    ranks = np.sort(texts.rank[used]).astype(np.int64)
    common = np.minimum.reduceat(texts.shared[: ranks[-1] + 1], ranks[:-1] + 1)
    return cost - int(common.sum())


def _shared(sent: Int32s, weights: Int64s, texts: Beginnings | None) -> int:
    """What neighbours of a schedule share. sent: (n, m), items in the order sent."""
    leading = np.logical_and.accumulate(sent[1:] == sent[:-1], axis=1)
    total = int(weights[sent[1:]][leading].sum())
    if texts is None:
        return total
    first = leading.sum(axis=1)
    for place in np.flatnonzero(first < sent.shape[1]).tolist():
        ranks = texts.rank[sent[place : place + 2, first[place]]]
        total += common_prefix(texts.shared, texts.least, int(ranks.min()), int(ranks.max()))
    return total


def _open_as_sent(lattice: Lattice, rows: Int64s, sent: Int32s, texts: Beginnings | None) -> Bools:
    """The nodes that occur in a schedule. sent: (n, m), items in the order sent."""
    opened = np.zeros(len(lattice.weight), np.bool_)
    sources = lattice.source[lattice.row[rows]]
    todo = [(0, len(rows), 0)]
    while todo:
        start, stop, depth = todo.pop()
        if stop - start < 2:
            continue
        common = lattice.above[:, sources[start:stop]].all(axis=1) & (lattice.begin == 0)
        node = np.flatnonzero(common)[-1]
        opened[node] = True
        if depth == sent.shape[1]:
            continue
        runs = list(_runs(sent[start:stop, depth]))
        todo += [(start + begin, start + end, depth + 1) for begin, end in runs]
        if texts is not None and len(runs) > 1:
            first = np.sort(texts.rank[sent[[start + begin for begin, _ in runs], depth]])
            beside = lattice.source == lattice.source[node]
            for a, b in pairwise(first.tolist()):
                length = common_prefix(texts.shared, texts.least, a, b)
                alike = (lattice.begin == length) & (lattice.low <= a) & (a <= lattice.high)
                opened |= beside & alike & (length > 0)
    return opened


def _runs(values: Int32s) -> Iterator[tuple[int, int]]:
    """Where runs of equal values begin and end."""
    ends = [*(np.flatnonzero(values[1:] != values[:-1]) + 1).tolist(), len(values)]
    return pairwise([0, *ends])


@dataclass(slots=True)
class _Search:
    """terminal: (nodes,). steps: the remaining steps. least: a gain that is not worth more of them.
    best: the cheapest tree so far. bound: no tree costs less."""

    lattice: Lattice
    terminal: Bools
    steps: int
    least: float
    stopped: Bools
    best: LatticeTree
    bound: int = 0

    @classmethod
    def within(cls, lattice: Lattice, steps: int, least: float, stopped: Bools) -> _Search:
        """A new search whose best tree has only the rows."""
        terminal = np.zeros(len(lattice.weight), np.bool_)
        terminal[lattice.row] = True
        terminal[0] = True
        cost = int((lattice.weight[terminal] - lattice.weight[0]).sum())
        return cls(lattice, terminal, steps, least, stopped, LatticeTree(cost, terminal))

    @property
    def done(self) -> bool:
        """Whether no tree is much cheaper than the best one."""
        return self.best.cost - self.bound <= self.least

    def start(self, opened: Bools) -> bool:
        """Improve a tree. If it is the cheapest so far, keep it and return True."""
        go_on(self.stopped)
        opened = opened | self.terminal
        cost, _, looks = improve(self.lattice, self.terminal, opened, max(self.steps, 0))
        self.steps -= looks
        better = cost < self.best.cost
        if better:
            self.best = LatticeTree(cost, opened)
        return better

    def ascend(self, opened: Bools) -> Bools | None:
        """Find a lower bound, and the nodes of another tree; None if that would take too long.

        opened: those of a good tree.
        """
        size = len(self.terminal)
        pairs = int(STEPS_PER_PAIR * size * size / 2)
        if pairs > self.steps:
            return None
        self.steps -= pairs
        graph = Graph(self.lattice, self.terminal)
        bound, left = graph.ascend(graph.parents_in(opened | self.terminal))
        self.bound = max(self.bound, bound)
        return graph.paid_nodes(left)

    def branch(self) -> None:
        """Search for the cheapest tree of a small lattice with half of the remaining steps."""
        arcs = self.steps // (2 * STEPS_PER_ARC)
        if len(self.terminal) > MOST_BRANCHED or arcs <= 0 or self.done:
            return
        order = cheapest_tree(self.lattice, arcs)
        self.bound = max(self.bound, order.bound)
        if order.tree.cost < self.best.cost:
            self.best = order.tree
        self.steps //= 2

    def close_at_random(self) -> None:
        """Repeatedly close some nodes of the best tree and improve it, until nothing helps."""
        random, failures = np.random.default_rng(0), 0
        while failures < MOST_FAILURES and self.steps > 0 and not self.done:
            free = np.flatnonzero(self.best.opened & ~self.terminal)
            count = min(int(random.integers(1, MOST_CLOSED + 1)), len(free))
            opened = self.best.opened.copy()
            opened[random.choice(free, count, replace=False)] = False
            failures = 0 if self.start(opened) else failures + 1
