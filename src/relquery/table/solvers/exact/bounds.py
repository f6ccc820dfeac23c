"""Lower bounds for `ophr`: the least that a tree can cost that opens given nodes of a lattice.

This uses dual ascent (R. Wong, 1984, "A dual ascent approach for Steiner tree problems on a
directed graph"). Take a set of nodes that contains a terminal but not the root. All arcs into it
are paid for together. This is repeated, set by set, until each terminal is reached along fully paid
arcs. A tree enters every such set, so it costs at least what was paid.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from relquery.arrays import Bools, Int64s
from relquery.table.compiled import compiled
from relquery.table.solvers.exact.lattice import Lattice, is_above

UNREACHABLE = 2**61


class Graph(NamedTuple):
    """Nodes of a lattice, lightest first; 0 is the root.

    weight: (nodes,). terminal: (nodes,), whether a node must be opened. ends: these nodes without
    the root. Arcs lead from a node to the nodes that cover it: into node j from
    `tails[start[j]:start[j + 1]]`. An arc costs the difference of the weights; longer steps are
    chains of arcs.
    """

    weight: Int64s
    terminal: Bools
    ends: Int64s
    start: Int64s
    tails: Int64s


def build_graph(lattice: Lattice, terminal: Bools) -> Graph:
    """The graph of all nodes of a lattice."""
    ends = np.flatnonzero(terminal)
    return Graph(lattice.weight, terminal, ends[ends > 0], *_find_covers(lattice))


@compiled
def _find_covers(lattice: Lattice) -> tuple[Int64s, Int64s]:
    """(start, tails) of a graph."""
    size = len(lattice.weight)
    start = np.zeros(size + 1, np.int64)
    tails = np.empty(4 * size, np.int64)
    above = lattice.above.T.copy()
    arcs = 0
    for j in range(size):
        first, source = arcs, lattice.source[j]
        for i in range(j - 1, -1, -1):
            if not above[source, i] and lattice.source[i] != source:
                continue
            if is_above(lattice, i, j) and not _is_above_any(lattice, i, tails[first:arcs]):
                if arcs == len(tails):
                    tails = np.concatenate((tails, np.empty_like(tails)))
                tails[arcs] = i
                arcs += 1
        start[j + 1] = arcs
    return start, tails[:arcs].copy()


@compiled
def _is_above_any(lattice: Lattice, i: int, others: Int64s) -> bool:
    for k in others:  # noqa: SIM110 - compiled code knows no any() over a generator
        if is_above(lattice, i, k):
            return True
    return False


@compiled
def parents_in(graph: Graph, opened: Bools) -> Int64s:
    """As `find_parents` finds them, by the arcs alone: -1 for the root and closed nodes."""
    nearest = np.zeros(len(opened), np.int64)  # the heaviest opened node above
    for j in range(1, len(opened)):
        for arc in range(graph.start[j], graph.start[j + 1]):
            tail = graph.tails[arc]
            nearest[j] = max(nearest[j], tail if opened[tail] else nearest[tail])
    parent = np.where(opened, nearest, -1)
    parent[0] = -1
    return parent


@compiled
def ascend(graph: Graph, parent: Int64s) -> tuple[int, Int64s]:
    """(lower bound of the cost, what each arc has left to pay) by dual ascent.

    parent: as in a good tree, -1 if closed. Sets entered by few steps of that tree come first, then
    sets with few arcs: if more than one step enters a set, the payment for the others is wasted.
    """
    size = len(graph.weight)
    left = np.empty(len(graph.tails), np.int64)
    for j in range(size):
        for arc in range(graph.start[j], graph.start[j + 1]):
            left[arc] = graph.weight[j] - graph.weight[graph.tails[arc]]
    score = np.full(size, -1)  # below 0: nothing to raise
    for end in graph.ends:
        score[end] = graph.start[end + 1] - graph.start[end]
    mark, members = np.zeros(size, np.int64), np.empty(size, np.int64)
    bound, stamp = 0, 0
    while True:
        terminal = _lowest(score, graph.ends)
        if terminal < 0:
            return bound, left
        stamp += 1
        members[0] = terminal
        reach = _collect(graph, left, score, members, mark, stamp)
        if reach == 0:
            score[terminal] = -1
            continue
        cut, least = _measure_cut(graph, left, parent, members[:reach], mark, stamp)
        if cut > score[terminal]:  # another one may be lower now
            score[terminal] = cut
            continue
        bound += least
        _pay(graph, left, members[:reach], mark, stamp, least)


@compiled
def _lowest(score: Int64s, ends: Int64s) -> int:
    """The index of the lowest score that is at least 0, or -1."""
    best = -1
    for j in ends:
        if score[j] >= 0 and (best < 0 or score[j] < score[best]):
            best = j
    return best


@compiled
def _collect(
    graph: Graph, left: Int64s, score: Int64s, members: Int64s, mark: Int64s, stamp: int
) -> int:
    """List and mark all nodes from which paid arcs lead to members[0]. Returns their number.

    Returns 0 if they include the root, or another terminal that is not reached yet: reaching that
    terminal then also reaches this one.
    """
    mark[members[0]] = stamp
    size, at = 1, 0
    while at < size:
        j = members[at]
        at += 1
        for arc in range(graph.start[j], graph.start[j + 1]):
            tail = graph.tails[arc]
            if left[arc] > 0 or mark[tail] == stamp:
                continue
            if tail == 0 or score[tail] >= 0:
                return 0
            mark[tail] = stamp
            members[size] = tail
            size += 1
    return size


@compiled
def _measure_cut(
    graph: Graph, left: Int64s, parent: Int64s, members: Int64s, mark: Int64s, stamp: int
) -> tuple[int, int]:
    """(score, least left to pay) of the arcs into the members."""
    score, least = 0, UNREACHABLE
    for j in members:
        if parent[j] >= 0 and mark[parent[j]] != stamp:
            score += len(graph.tails)
        for arc in range(graph.start[j], graph.start[j + 1]):
            if mark[graph.tails[arc]] != stamp:
                score += 1
                least = min(least, left[arc])
    return score, least


@compiled
def _pay(graph: Graph, left: Int64s, members: Int64s, mark: Int64s, stamp: int, least: int) -> None:
    """Pay `least` for each arc into the members."""
    for j in members:
        for arc in range(graph.start[j], graph.start[j + 1]):
            if mark[graph.tails[arc]] != stamp:
                left[arc] -= least


@compiled
def branch_costs(graph: Graph, left: Int64s) -> Int64s:
    """Per node, the least remaining cost of a tree in which the node has two children.

    A node with fewer children can be closed at no cost.
    """
    size = len(graph.weight)
    down, near, second = np.full((3, size), UNREACHABLE)
    down[0] = 0
    for j in range(1, size):
        for arc in range(graph.start[j], graph.start[j + 1]):
            down[j] = min(down[j], down[graph.tails[arc]] + left[arc])
    for j in range(size - 1, 0, -1):
        to_terminal = 0 if graph.terminal[j] else near[j]
        for arc in range(graph.start[j], graph.start[j + 1]):
            tail, cost = graph.tails[arc], min(UNREACHABLE, to_terminal + left[arc])
            if cost < near[tail]:
                near[tail], second[tail] = cost, near[tail]
            elif cost < second[tail]:
                second[tail] = cost
    least: Int64s = np.minimum(down + np.minimum(near + second, UNREACHABLE), UNREACHABLE)
    return least


@compiled
def paid_nodes(graph: Graph, left: Int64s) -> Bools:
    """The terminals, and the nodes reached from the root along fully paid arcs."""
    reached = np.zeros(len(graph.weight), np.bool_)
    reached[0] = True
    for j in range(1, len(reached)):
        for arc in range(graph.start[j], graph.start[j + 1]):
            if left[arc] == 0 and reached[graph.tails[arc]]:
                reached[j] = True
    return reached | graph.terminal


@compiled
def label_parts(graph: Graph) -> Int64s:
    """A number per node, equal for nodes connected by arcs other than the root's."""
    label = np.arange(len(graph.weight))
    for j in range(1, len(label)):
        for arc in range(graph.start[j], graph.start[j + 1]):
            a, b = label[j], label[graph.tails[arc]]
            if b not in (0, a):
                label[label == max(a, b)] = min(a, b)
    return label
