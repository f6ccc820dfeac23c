"""`ophr`: the exact optimum (paper 000, §4.1), for small tables.

Any order of rows, and of items in each, is worth no more than the trie of its item sequences: per
node, the weight of its items times the rows through it minus one. A depth-first walk of the trie
reaches this worth. So we look for the best trie. Its nodes can be taken from a lattice. They are
*sets* of items that some rows have in common, plus the beginning of one more item if beginnings
count. Each node is used once: merging two nodes of one set gains. Nodes left out of the lattice are
not needed for the best tree. If each node costs what it adds to its parent, and
every row is at a node whose items it all has,

    worth = summed weight of all rows - cost of the trie,

and the cheapest trie is a minimum Steiner arborescence in the lattice, with the rows as terminals.
Small real tables have small lattices (50 beers with 13 columns: 375 sets), and dual ascent gives
bounds close to the cost, so branch and bound ends soon.

The paper's recursion (Optimal Prefix Hit Recursion) puts *all* rows that have the chosen value
into its group. That is not always the best. For the rows `a b c -`, `a b - d`, `a - c d`,
`- b c d`, with a and d worth 16 and b and c worth 9, it reaches 48. Putting the second next to the
third and the first next to the fourth reaches 50: for each value, one row stays out of the group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from relquery._native import find_parents
from relquery.arrays import Floats, Int32s, Int64s
from relquery.errors import ConfigError
from relquery.reordering.items import Beginnings
from relquery.reordering.solvers.lattice import Lattice, build_lattice
from relquery.reordering.solvers.problem import Order, Problem
from relquery.reordering.solvers.search import MOST_ARCS, LatticeTree, cheapest_tree

MOST_ROWS = 1000


def ophr(problem: Problem, texts: Beginnings | None = None) -> Order:
    """(rows, fields by row id) of the highest worth; the same for the same problem.

    Worth is summed over neighbours: weights of the leading items that are equal and, with `texts`,
    what the next two have in common, in the unit of the weights. If one item is a prefix of the
    other, what the prompts share beyond its end is not counted.

    Raises ConfigError for more than MOST_ROWS rows, and if the optimum cannot be proved, so every
    result is optimal.
    """
    rows, slots = optimum(problem.items, problem.weights, texts)
    return rows, np.take_along_axis(problem.places.T, slots.astype(np.int64), axis=1)


def optimum(
    items: Int32s,
    weights: Int64s | Floats,
    texts: Beginnings | None = None,
    most_arcs: int = MOST_ARCS,
) -> Order:
    """`ophr` for items (m, n) and their weights; the items of a row are distinct.

    most_arcs: the number of arcs of the lattice that a proof may look at.
    """
    slots, rows = items.shape
    if rows > MOST_ROWS:
        raise ConfigError(
            f"The table has {rows} rows; an exact search supports at most {MOST_ROWS}. "
            "Use method 'tree', or fewer rows."
        )
    if rows == 0:
        return np.empty(0, np.int64), np.empty((0, slots), np.int32)
    lattice = build_lattice(items, weights, texts)
    order = cheapest_tree(lattice, most_arcs)
    if not order.proved:
        raise ConfigError(
            "This table is too complex for an exact search: its rows share values in too many "
            "ways to prove that an order is the best. Use method 'tree', or fewer rows or columns."
        )
    return walk(items, lattice, order.tree, texts)


def walk(items: Int32s, lattice: Lattice, tree: LatticeTree, texts: Beginnings | None) -> Order:
    """The order in which a depth-first walk of a tree visits the rows."""
    slots, rows = items.shape
    order, fields = np.empty(rows, np.int64), np.empty((rows, slots), np.int32)
    rank = [0] * (int(items.max(initial=-1)) + 1) if texts is None else texts.rank.tolist()
    root = _plant([frozenset(row) for row in items.T.tolist()], lattice, tree)
    for place, (row, sent) in enumerate(root.walk((), None, rank)):
        order[place] = row
        slot_of = {item: slot for slot, item in enumerate(items[:, row].tolist())}
        first = [slot_of.pop(item) for item in sent]
        fields[row] = [*first, *slot_of.values()]
    return order, fields


@dataclass(frozen=True, slots=True)
class _Node:
    """A node of the trie.

    common: items that all rows below have, including items of weight 0. begin: the lowest and
        highest rank of the items with which children continue; None if there is no restriction.
    rows: the rows that end here.
    """

    common: frozenset[int]
    begin: tuple[int, int] | None
    rows: list[int]
    children: list[_Node]

    def walk(
        self, sent: tuple[int, ...], begun: tuple[int, int] | None, rank: list[int]
    ) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Each row in the order to send, with its leading items.

        begun: the `begin` of the parent.
        """
        new = sorted(self.common.difference(sent))
        if begun is not None:
            fitting = [item for item in new if begun[0] <= rank[item] <= begun[1]]
            if fitting:
                new.remove(fitting[0])
                new.insert(0, fitting[0])
            elif self.begin is not None:  # a longer beginning of the same item
                new = []
        sent += tuple(new)
        for row in self.rows:
            yield row, sent
        for child in self.children:
            yield from child.walk(sent, self.begin, rank)


def _plant(sets: list[frozenset[int]], lattice: Lattice, tree: LatticeTree) -> _Node:
    """The root of the trie; sets: the rows' items."""
    parent = find_parents(lattice, tree.opened)
    rows: dict[int, list[int]] = {}
    for row, leaf in enumerate(lattice.row.tolist()):
        rows.setdefault(leaf, []).append(row)
    children: dict[int, list[_Node]] = {}
    for j in np.flatnonzero(tree.opened)[::-1].tolist():  # a node comes after its ancestors
        below = children.get(j, [])[::-1]
        sharing = [sets[row] for row in rows.get(j, [])] + [node.common for node in below]
        if not sharing:  # opened without any gain
            continue
        begin = (int(lattice.low[j]), int(lattice.high[j])) if lattice.begin[j] else None
        node = _Node(frozenset.intersection(*sharing), begin, rows.get(j, []), below)
        children.setdefault(int(parent[j]), []).append(node)
    return node
