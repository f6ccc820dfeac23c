"""Good trees for `ophr`: single concepts are opened or closed while that makes the tree cheaper."""

from __future__ import annotations

import numpy as np

from relquery.table.columns import Bools, Int64s
from relquery.table.compiled import compiled
from relquery.table.solvers.ophr_bounds import Graph


@compiled
def improve(graph: Graph, opened: Bools) -> tuple[int, Int64s]:
    """Open and close concepts, one at a time, while that gains; gives (cost, parent).

    opened: (k,), root and terminals included; what is opened in the end is left in it.
    """
    parent = find_parents(graph.above, opened)
    gaining = True
    while gaining:
        gaining = False
        for j in range(1, len(opened)):
            if graph.terminal[j]:
                continue
            if opened[j]:
                gain = _closing_gain(graph, opened, parent, j)
            else:
                gain = _opening_gain(graph, opened, parent, j)
            if gain > 0 or (gain == 0 and opened[j]):
                opened[j] = not opened[j]
                parent = find_parents(graph.above, opened)
                gaining = gaining or gain > 0
    cost = graph.weight[opened].sum() - graph.weight[parent[opened][1:]].sum() - graph.weight[0]
    return cost, parent


@compiled
def find_parents(above: Bools, opened: Bools) -> Int64s:
    """Of each opened concept, the heaviest opened one above it; -1 for the root and the closed."""
    parent = np.full(len(opened), -1, np.int64)
    for j in range(1, len(opened)):
        if opened[j]:
            parent[j] = _heaviest(above, opened, j, j)
    return parent


@compiled
def _heaviest(above: Bools, opened: Bools, j: int, before: int) -> int:
    i = before - 1
    while not (opened[i] and above[i, j]):
        i -= 1
    return i


@compiled
def _opening_gain(graph: Graph, opened: Bools, parent: Int64s, j: int) -> int:
    weight = graph.weight
    gain: int = weight[_heaviest(graph.above, opened, j, j)] - weight[j]
    for k in range(j + 1, len(weight)):
        if opened[k] and graph.above[j, k] and parent[k] < j:
            gain += weight[j] - weight[parent[k]]
    return gain


@compiled
def _closing_gain(graph: Graph, opened: Bools, parent: Int64s, j: int) -> int:
    weight = graph.weight
    gain: int = weight[j] - weight[parent[j]]
    for k in range(j + 1, len(weight)):
        if parent[k] == j:
            gain -= weight[j] - weight[_heaviest(graph.above, opened, k, j)]
    return gain
