"""Finds good trees for `ophr`: opens or closes single nodes while that makes the tree cheaper."""

from __future__ import annotations

import numpy as np

from relquery.arrays import Bools, Int64s
from relquery.table.compiled import compiled
from relquery.table.solvers.exact.lattice import Lattice, is_above

NO_LIMIT = 2**62


@compiled
def improve(lattice: Lattice, terminal: Bools, opened: Bools, most: int) -> tuple[int, Int64s, int]:
    """Open and close nodes, one at a time, while that gains. Returns (cost, parent, looks).

    terminal, opened: (nodes,). opened includes the root and terminals, and receives the result.
    most: roughly how many pairs of nodes to look at.
    """
    parent = find_parents(lattice, opened)
    gaining, looks = True, 0
    while gaining:
        gaining = False
        members = np.flatnonzero(opened)
        for j in range(1, len(opened)):
            if terminal[j]:
                continue
            looks += len(members)
            if looks > most:
                break
            if opened[j]:
                gain = _closing_gain(lattice, members, parent, j)
            else:
                gain = _opening_gain(lattice, members, parent, j)
            if gain > 0 or (gain == 0 and opened[j]):
                opened[j] = not opened[j]
                members = np.flatnonzero(opened)
                _adopt(lattice, members, parent, j, opened[j])
                gaining = gaining or gain > 0
        gaining = gaining and looks <= most
    weight = lattice.weight
    return weight[opened].sum() - weight[parent[opened][1:]].sum() - weight[0], parent, looks


@compiled
def find_parents(lattice: Lattice, opened: Bools) -> Int64s:
    """For each opened node, the heaviest opened node above it; -1 for the root and closed nodes."""
    parent = np.full(len(opened), -1, np.int64)
    members = np.flatnonzero(opened)
    for j in members[1:]:
        parent[j] = _heaviest(lattice, members, j, j)
    return parent


@compiled
def _heaviest(lattice: Lattice, members: Int64s, j: int, before: int) -> int:
    """The last member before `before` that is above j; the root is above all."""
    k = np.searchsorted(members, before) - 1
    while k > 0 and not is_above(lattice, members[k], j):
        k -= 1
    return int(members[k])


@compiled
def _opening_gain(lattice: Lattice, members: Int64s, parent: Int64s, j: int) -> int:
    weight, source, above = lattice.weight, lattice.source, lattice.above[j]
    here, own = weight[j], source[j]
    gain = int(weight[_heaviest(lattice, members, j, j)] - here)
    for m in range(np.searchsorted(members, j), len(members)):
        k = members[m]
        if parent[k] < j and (above[source[k]] or source[k] == own) and is_above(lattice, j, k):
            gain += here - weight[parent[k]]
    return gain


@compiled
def _closing_gain(lattice: Lattice, members: Int64s, parent: Int64s, j: int) -> int:
    weight = lattice.weight
    gain = int(weight[j] - weight[parent[j]])
    for m in range(np.searchsorted(members, j), len(members)):
        k = members[m]
        if parent[k] == j:
            gain -= weight[j] - weight[_heaviest(lattice, members, k, j)]
    return gain


@compiled
def _adopt(lattice: Lattice, members: Int64s, parent: Int64s, j: int, opened: bool) -> None:
    """Set the parents of node j, just opened or closed, and of the nodes below it."""
    parent[j] = _heaviest(lattice, members, j, j) if opened else -1
    for m in range(np.searchsorted(members, j), len(members)):
        k = members[m]
        if opened and k != j and parent[k] < j and is_above(lattice, j, k):
            parent[k] = j
        elif parent[k] == j and not opened:
            parent[k] = _heaviest(lattice, members, k, j)
