"""The search of `ophr`: branch and bound over which nodes of a lattice are opened.

After each bound, nodes where no better tree can branch are dropped. Parts of the lattice that are
connected only by the root are solved separately. The search branches on the node whose two cases
raise the bound the most (strong branching). If one case cannot beat the best known tree, the other
case applies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from relquery._native import Graph, find_parents, improve
from relquery.arrays import Bools, Int64s
from relquery.reordering.solvers.lattice import Lattice, restrict

MOST_ARCS = 50_000_000  # limit for all lower bounds together: about a minute
MOST_DEPTH = 200
NO_LIMIT = 2**62
ROUNDS = 4  # ascents per task, each guided by the best tree of the previous one
CANDIDATES = 8  # nodes whose two cases are compared


class LatticeTree(NamedTuple):
    """opened: (nodes,). cost: total weight that the opened nodes add to their parents."""

    cost: int
    opened: Bools


class CheapestTree(NamedTuple):
    """The cheapest tree found. bound: no tree costs less; equal to the cost if that is proved."""

    tree: LatticeTree
    bound: int

    @property
    def proved(self) -> bool:
        return self.bound >= self.tree.cost


class Subproblem(NamedTuple):
    """alive: nodes that may be opened, ascending. terminal: (nodes,), whether a node must be."""

    alive: Int64s
    terminal: Bools


class View(NamedTuple):
    """A task with its lower bound and a good tree.

    bound: no tree costs less. at_least: (alive,), no tree that branches at the node costs less.
    rank: (alive,), how promising it is to branch on the node. tree: a good tree.
    """

    graph: Graph
    bound: int
    at_least: Int64s
    rank: Int64s
    tree: LatticeTree


class _SpentError(Exception):
    """The bounds have looked at the maximum number of arcs."""


def cheapest_tree(lattice: Lattice, most_arcs: int) -> CheapestTree:
    """The cheapest tree that opens the node of every row, or a good tree and a bound.

    most_arcs: limit on the arcs that all lower bounds together look at.
    """
    terminal = np.zeros(len(lattice.weight), np.bool_)
    terminal[lattice.row] = True
    task = Subproblem(np.arange(len(lattice.weight)), terminal)
    search = _Search(lattice, most_arcs)
    try:
        tree = search.solve(task, int(lattice.weight.sum()) + 1, 0)
    except _SpentError:
        assert search.best is not None
        return CheapestTree(search.best, search.bound)
    assert tree is not None  # opening all nodes costs less
    return CheapestTree(tree, tree.cost)


@dataclass(slots=True)
class _Search:
    """arcs: number that lower bounds have looked at. best, bound: for the whole lattice."""

    lattice: Lattice
    most_arcs: int
    arcs: int = 0
    best: LatticeTree | None = None
    bound: int = 0

    def solve(
        self, task: Subproblem, cutoff: int, depth: int, part: bool = False
    ) -> LatticeTree | None:
        """The cheapest tree of a task, or None if none costs less than the cutoff.

        part: whether it is only a part of the lattice.
        """
        if depth > MOST_DEPTH:
            raise _SpentError
        best = None
        while True:
            view = self._view(task)
            if view.tree.cost < cutoff:
                best, cutoff = view.tree, view.tree.cost
                self.best = self.best if part else best
            if depth == 0:
                self.bound = max(self.bound, min(view.bound, cutoff))
            if view.bound >= cutoff:
                return best
            cases = [_drop(task, view.at_least < cutoff)]
            if len(cases[0].alive) == len(task.alive):
                parts = _split(task, view.graph)
                if len(parts) > 1:
                    return self._solve_apart(parts, cutoff, depth + 1) or best
                cases = self._choose_cases(task, view, cutoff)
            if len(cases) > 1:
                return self._solve_cases(cases, cutoff, depth + 1, part) or best
            task = cases[0]

    def _solve_cases(
        self, cases: list[Subproblem], cutoff: int, depth: int, part: bool
    ) -> LatticeTree | None:
        """The cheapest tree of any of the cases."""
        best = None
        for case in cases:
            better = self.solve(case, cutoff, depth, part)
            if better is not None:
                best, cutoff = better, better.cost
        return best

    def _solve_apart(self, parts: list[Subproblem], cutoff: int, depth: int) -> LatticeTree | None:
        """The cheapest trees of all parts, combined into one tree."""
        bounds = [self._bound(part, None) for part in parts]
        cost, opened = 0, np.zeros(len(self.lattice.weight), np.bool_)
        for i, part in enumerate(parts):
            tree = self.solve(part, cutoff - cost - sum(bounds[i + 1 :]), depth, part=True)
            if tree is None:
                return None
            cost += tree.cost
            opened |= tree.opened
        return LatticeTree(cost, opened)

    def _choose_cases(self, task: Subproblem, view: View, cutoff: int) -> list[Subproblem]:
        """Two cases (a node opened or closed), or one case if the other cannot be better."""
        free = np.flatnonzero(~task.terminal[task.alive])
        free = free[free > 0]
        best, chosen = (-1, -1), []
        for place in free[np.argsort(-view.rank[free], kind="stable")][:CANDIDATES]:
            closed, opened = _close(task, place), _open(task, place)
            if_closed = self._bound(closed, view.tree.opened)
            if if_closed >= cutoff:
                return [opened]
            if_opened = self._bound(opened, view.tree.opened)
            if if_opened >= cutoff:
                return [closed]
            gain = min(if_closed, if_opened), max(if_closed, if_opened)
            if gain > best:
                best, chosen = gain, [opened, closed]
        return chosen

    def _view(self, task: Subproblem) -> View:
        lattice, graph = self._part(task)
        bound, left = self._ascend(graph, np.full(len(task.alive), -1, np.int64))
        at_least = bound + graph.branch_costs(left)
        opened = graph.paid_nodes(left)
        terminal = task.terminal[task.alive]
        cost, parent, _ = improve(lattice, terminal, opened, NO_LIMIT)
        for _ in range(ROUNDS - 1):
            higher, paid = self._ascend(graph, parent)
            at_least = np.maximum(at_least, higher + graph.branch_costs(paid))
            if higher > bound:
                bound, left = higher, paid
            others = graph.paid_nodes(paid)
            less, parent, _ = improve(lattice, terminal, others, NO_LIMIT)
            if less >= cost:
                break
            cost, opened = less, others
        rank = 2 * graph.paid_arcs(left) + opened
        chosen = np.zeros(len(self.lattice.weight), np.bool_)
        chosen[task.alive[opened]] = True
        return View(graph, bound, at_least, rank, LatticeTree(cost, chosen))

    def _bound(self, task: Subproblem, opened: Bools | None) -> int:
        """A lower bound on the task's cost. opened: a good tree of a similar task."""
        lattice, graph = self._part(task)
        bound, _ = self._ascend(graph, np.full(len(task.alive), -1, np.int64))
        if opened is None:
            return bound
        lead = opened[task.alive] | task.terminal[task.alive]
        lead[0] = True
        higher, _ = self._ascend(graph, find_parents(lattice, lead))
        return max(bound, higher)

    def _part(self, task: Subproblem) -> tuple[Lattice, Graph]:
        lattice = restrict(self.lattice, task.alive)
        return lattice, Graph(lattice, task.terminal[task.alive])

    def _ascend(self, graph: Graph, parent: Int64s) -> tuple[int, Int64s]:
        self.arcs += graph.arcs
        if self.arcs > self.most_arcs and self.best is not None:
            raise _SpentError
        return graph.ascend(parent)


def _drop(task: Subproblem, keep: Bools) -> Subproblem:
    """The task with only these nodes, its terminals and the root alive."""
    keep = keep | task.terminal[task.alive]
    keep[0] = True
    return Subproblem(task.alive[keep], task.terminal)


def _close(task: Subproblem, place: int) -> Subproblem:
    return Subproblem(np.delete(task.alive, place), task.terminal)


def _open(task: Subproblem, place: int) -> Subproblem:
    terminal = task.terminal.copy()
    terminal[task.alive[place]] = True
    return Subproblem(task.alive, terminal)


def _split(task: Subproblem, graph: Graph) -> list[Subproblem]:
    """The parts that only the root connects, each with the root, smallest first."""
    label = graph.label_parts()
    parts = [
        Subproblem(task.alive[(label == part) | (label == 0)], task.terminal)
        for part in np.unique(label[1:])
    ]
    return sorted(parts, key=lambda part: len(part.alive))
