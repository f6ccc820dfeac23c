"""`ophr`: the exact optimum (paper 000, §4.1), for small tables.

Any order of rows, and of items in each, is worth no more than the trie of its item sequences: per
node, the weight of its items times the rows through it but one. A depth-first walk of the trie is
worth all of that. So a trie is sought. Its nodes may be taken to be *concepts*, sets of items that
some rows have in common, each used once: two nodes of one concept gain by being merged. With each
node at the cost of what it adds to its parent, and every row at a node that it has all items of,

    worth = summed weight of all rows - cost of the trie,

and the cheapest trie is a minimum Steiner arborescence in the lattice of concepts, with the rows
as terminals. Small real tables have few concepts (50 beers of 13 columns: 375), and dual ascent
gives bounds close to the cost, so that branch and bound ends soon.

The paper's recursion (Optimal Prefix Hit Recursion) puts *all* rows that have the chosen value
into its group. That is not always the best: of the rows `a b c -`, `a b - d`, `a - c d`, `- b c d`,
with a and d worth 16 and b and c worth 9, it reaches 48, where the second beside the third and the
first beside the fourth reach 50: one row with each value is left out of its group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from relquery.errors import ConfigError
from relquery.table.columns import Int32s, Int64s
from relquery.table.solvers.ophr_improve import find_parents
from relquery.table.solvers.ophr_lattice import Float64s, build_lattice
from relquery.table.solvers.ophr_search import cheapest_tree
from relquery.table.solvers.segment import Problem

MOST_ROWS = 1000


def ophr(problem: Problem) -> tuple[Int64s, Int32s]:
    """(rows, fields by row id) of the highest worth; the same for the same problem.

    Raises ConfigError for more than MOST_ROWS rows, and where the optimum cannot be proved: what
    is returned is never less.
    """
    rows, slots = optimum(problem.items, problem.weights)
    return rows, np.take_along_axis(problem.places.T, slots.astype(np.int64), axis=1)


def optimum(items: Int32s, weights: Int64s | Float64s) -> tuple[Int64s, Int32s]:
    """`ophr` for items (m, n) and their weights; the items of a row are distinct."""
    slots, rows = items.shape
    if rows > MOST_ROWS:
        raise ConfigError(
            f"The table has {rows} rows; an exact search takes at most {MOST_ROWS}. "
            "Use method 'tree', or fewer rows."
        )
    order, fields = np.empty(rows, np.int64), np.empty((rows, slots), np.int32)
    if rows == 0:
        return order, fields
    lattice = build_lattice(items, weights)
    parent = find_parents(lattice.above, cheapest_tree(lattice).opened)
    sets = [frozenset(row) for row in items.T.tolist()]
    for place, (row, sent) in enumerate(_plant(sets, lattice.row, parent).walk(())):
        order[place] = row
        slot_of = {item: slot for slot, item in enumerate(items[:, row].tolist())}
        first = [slot_of.pop(item) for item in sent]
        fields[row] = [*first, *slot_of.values()]
    return order, fields


@dataclass(frozen=True, slots=True)
class _Node:
    """A concept of the trie.

    common: items, those of weight 0 too, that all rows below have. rows: those that end here.
    """

    common: frozenset[int]
    rows: list[int]
    children: list[_Node]

    def walk(self, sent: tuple[int, ...]) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Each row in the order to send, with its leading items."""
        sent += tuple(sorted(self.common.difference(sent)))
        for row in self.rows:
            yield row, sent
        for child in self.children:
            yield from child.walk(sent)


def _plant(sets: list[frozenset[int]], concept: Int64s, parent: Int64s) -> _Node:
    """The root of the trie; sets: the rows' items, concept: where each row ends."""
    rows: dict[int, list[int]] = {}
    for row, leaf in enumerate(concept.tolist()):
        rows.setdefault(leaf, []).append(row)
    children: dict[int, list[_Node]] = {}
    for j in range(len(parent) - 1, -1, -1):  # a concept comes after those above it
        if j == 0 or parent[j] >= 0:
            below = children.get(j, [])[::-1]
            sharing = [sets[row] for row in rows.get(j, [])] + [node.common for node in below]
            node = _Node(frozenset.intersection(*sharing), rows.get(j, []), below)
            children.setdefault(int(parent[j]), []).append(node)
    return node
