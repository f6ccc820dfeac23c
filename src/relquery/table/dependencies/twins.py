"""Columns that determine each other in all rows, which a search can order as one.

Values are numbered in the order of first appearance, so two columns determine each other exactly
if their codes are equal. Rows that share one of the values share the others, so the columns belong
side by side (paper 000, §4.2.1), and a search over fewer columns takes less time. Every row is
compared, so nothing depends on what was declared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from relquery.arrays import Int32s, Int64s
from relquery.table.items import Items

_FEW = 64  # rows


@dataclass(frozen=True, slots=True, eq=False)
class Twins:
    """members: per group, its columns as they are sent; the first stands for them all."""

    members: tuple[tuple[int, ...], ...]

    @property
    def any(self) -> bool:
        """Whether a group has several columns."""
        return any(len(group) > 1 for group in self.members)

    @property
    def first(self) -> Int64s:
        """(groups,), the first column of each group."""
        return np.array([group[0] for group in self.members], np.int64)

    def reduce(self, items: Items) -> Items:
        """Only the first column of each group. Items are numbered as before."""
        _, bags = np.unique(items.bags[self.first], return_inverse=True)
        first_of = np.unique(bags, return_index=True)[1]
        return replace(
            items,
            slots=np.ascontiguousarray(items.slots[self.first]),
            bags=first_of[bags].astype(np.int32),
        )

    def weigh(self, items: Items, weights: Int64s) -> Int64s:
        """(items,), with the weights of its twins added to each item of a first column."""
        summed = weights.copy()
        for first, *others in self.members:
            size = int(items.slots[first].max()) + 1 - int(items.slots[first].min())
            for other in others:
                start, twin = int(items.slots[first].min()), int(items.slots[other].min())
                summed[start : start + size] += weights[twin : twin + size]
        return summed

    def expand(self, fields: Int32s) -> Int32s:
        """Orders of all columns (n, columns) from orders of groups (n, groups)."""
        table = np.full((len(self.members), max(map(len, self.members))), -1, np.int32)
        for number, group in enumerate(self.members):
            table[number, : len(group)] = group
        members = table[fields].reshape(len(fields), -1)
        expanded: Int32s = members[members >= 0].reshape(len(fields), -1)
        return expanded


def find_twins(items: Items) -> Twins:
    """The columns of a table with at least one row in groups. Columns of a bag stay alone.

    The first of a group is the one whose values begin most alike: a row that differs in the group
    still shares the beginning of its first value with the row before.
    """
    groups: list[list[int]] = []
    for column in range(len(items.slots)):
        for group in groups:
            if not (items.in_bag(column) or items.in_bag(group[0])) and _are_twins(
                items.slots[column], items.slots[group[0]]
            ):
                group.append(column)
                break
        else:
            groups.append([column])
    return Twins(tuple(_most_alike_first(items, group) for group in groups))


def _are_twins(one: Int32s, other: Int32s) -> bool:
    """Whether the codes of two columns are equal. Most that are not differ in the first rows."""
    apart = int(other[0]) - int(one[0])
    few = slice(0, _FEW)
    return bool((other[few] - one[few] == apart).all() and (other - one == apart).all())


def _most_alike_first(items: Items, group: list[int]) -> tuple[int, ...]:
    def alike(column: int) -> int:
        found = items.slots[column]
        ranks = items.rank[int(found.min()) : int(found.max()) + 1]
        return int(items.shared[ranks].sum())

    if len(group) == 1:
        return tuple(group)
    first = max(group, key=alike)
    return (first, *(column for column in group if column != first))
