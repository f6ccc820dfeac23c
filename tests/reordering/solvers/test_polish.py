"""`polish` against the cheapest tree, which a branch and bound proves."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from relquery._native import Graph, find_parents
from relquery.arrays import Int32s, Int64s
from relquery.reordering.cost.meter import beginnings_of, weigh
from relquery.reordering.encode import encode
from relquery.reordering.items import Beginnings, Items, itemize
from relquery.reordering.solvers.lattice import build_lattice
from relquery.reordering.solvers.ophr import optimum
from relquery.reordering.solvers.polish import least_cost, polish
from relquery.reordering.solvers.search import cheapest_tree

ENOUGH = 10**7  # arcs; every table here is solved
TEXTS = ["", "a", "ab", "abc", "abd", "b", "x y", "x z"]
Sent = tuple[Int64s, Int32s]
Posed = tuple[Items, Int64s, Beginnings | None]


@st.composite
def tables(draw: st.DrawFn) -> Posed:
    """Up to 7 rows of up to 3 columns, weighed by tokens or as in the paper."""
    rows, slots = draw(st.integers(2, 7)), draw(st.integers(1, 3))
    column = st.lists(st.sampled_from(TEXTS), min_size=rows, max_size=rows)
    items = itemize(encode({f"c{slot}": draw(column) for slot in range(slots)}), ())
    weighting = weigh(items, draw(st.sampled_from(["tokens", "squared"])), None, "")
    return items, weighting.weights, beginnings_of(items, weighting)


def cost_of(items: Items, weights: Int64s, texts: Beginnings | None) -> int:
    found = cheapest_tree(build_lattice(items.slots, weights, texts), ENOUGH)
    assert found.proved
    return found.tree.cost


def sent_in(items: Items, random: np.random.Generator) -> Sent:
    slots, rows = items.slots.shape
    fields = np.array([random.permutation(slots) for _ in range(rows)], np.int32)
    return random.permutation(rows), fields


@given(tables())
def test_no_tree_costs_less_than_its_distinct_beginnings(table: Posed) -> None:
    items, weights, texts = table
    common = int(build_lattice(items.slots, weights, texts).weight[0])
    assert least_cost(items.slots, weights, texts) - common <= cost_of(*table)


@given(tables(), st.integers(0, 9))
def test_a_polished_schedule_is_the_best_one(table: Posed, seed: int) -> None:
    items, weights, texts = table
    sent, stopped = sent_in(items, np.random.default_rng(seed)), np.zeros(1, np.bool_)
    better = polish(items.slots, weights, texts, sent, 5.0, stopped)
    rows, by_row = optimum(items.slots, weights, texts)
    best = worth(items, weights, texts, (rows, by_row[rows]))
    if better is None:
        assert worth(items, weights, texts, sent) == best
    else:
        rows, by_row = better
        assert worth(items, weights, texts, sent) < best
        assert worth(items, weights, texts, (rows, by_row[rows])) == best


@given(tables(), st.integers(0, 9))
def test_arcs_lead_to_the_same_parents_as_a_look_at_all_nodes(table: Posed, seed: int) -> None:
    items, weights, texts = table
    lattice = build_lattice(items.slots, weights, texts)
    random = np.random.default_rng(seed)
    opened = random.random(len(lattice.weight)) < random.random()
    opened[0] = True
    found = Graph(lattice, opened).parents_in(opened)
    assert found.tolist() == find_parents(lattice, opened).tolist()


def worth(items: Items, weights: Int64s, texts: Beginnings | None, sent: Sent) -> int:
    """Summed over neighbours: their leading items that are equal, and what the next two share."""
    rows, fields = sent
    total = 0
    for place in range(1, len(rows)):
        pairs = [
            [int(items.slots[fields[at, slot], rows[at]]) for slot in range(len(items.slots))]
            for at in (place - 1, place)
        ]
        for before, item in zip(*pairs, strict=True):
            if before != item:
                if texts is not None:
                    a, b = sorted((int(texts.rank[before]), int(texts.rank[item])))
                    total += int(texts.shared[a + 1 : b + 1].min())
                break
            total += int(weights[item])
    return total
