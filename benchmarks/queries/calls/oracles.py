"""What each query's result depends on, computed from the tables with all answers known.

Each function says in its docstring which answers the result depends on: with any fewer, and no
other answer known, the result could be another. None of it uses the planner.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks.queries.calls.world import (
    COMMON,
    KIND,
    MOOD,
    RARE,
    SAME,
    SCORE,
    SHIPPING,
    SUMMARY,
    URGENT,
    Row,
    World,
    is_yes,
    text,
)

SHOWN = 10
"""The LIMIT of the queries that have one."""


@dataclass(frozen=True, slots=True)
class Needed:
    """rows: of the result of the naive plan. calls: that the result depends on. per_row: calls
    where each row has its own: conditions without calls first, then the others as written, then
    SELECT, then ORDER BY and LIMIT."""

    rows: list[tuple[Any, ...]]
    calls: int
    per_row: int


def every_review(world: World) -> Needed:
    """Every distinct review's mood."""
    rows = [(row["id"], text(MOOD, review=row["review"])) for row in world.reviews]
    return Needed(rows, _distinct(world.reviews, "review"), len(rows))


def filter_and_projection(world: World) -> Needed:
    """Whether each distinct review complains, and the mood of each that does."""
    left = [row for row in world.reviews if is_yes(SHIPPING, review=row["review"])]
    rows = [(row["id"], text(MOOD, review=row["review"])) for row in left]
    calls = _distinct(world.reviews, "review") + _distinct(left, "review")
    return Needed(rows, calls, len(world.reviews) + len(left))


def plain_and(world: World) -> Needed:
    """Whether each distinct review with few stars complains."""
    few = [row for row in world.reviews if row["stars"] <= 2]
    rows = [(row["id"],) for row in few if is_yes(SHIPPING, review=row["review"])]
    return Needed(rows, _distinct(few, "review"), len(few))


def plain_or(world: World) -> Needed:
    """Whether each distinct review complains that has a row without five stars."""
    open_rows = [row for row in world.reviews if row["stars"] != 5]
    rows = [
        (row["id"],)
        for row in world.reviews
        if row["stars"] == 5 or is_yes(SHIPPING, review=row["review"])
    ]
    return Needed(rows, _distinct(open_rows, "review"), len(open_rows))


def limit(world: World) -> Needed:
    """Whether each ticket is urgent, up to the tenth that is, in the table's order."""
    rows: list[tuple[Any, ...]] = []
    for calls, row in enumerate(world.tickets, 1):
        if is_yes(URGENT, body=row["body"]):
            rows.append((row["id"],))
        if len(rows) == SHOWN:
            return Needed(rows, calls, len(world.tickets))
    return Needed(rows, len(world.tickets), len(world.tickets))


def both(world: World) -> Needed:
    """Of a ticket with two Yes, both answers; of any other, one No."""
    rare = [row for row in world.tickets if is_yes(RARE, body=row["body"])]
    common = [row for row in world.tickets if is_yes(COMMON, body=row["body"])]
    rows = [(row["id"],) for row in rare if row in common]
    return Needed(rows, len(world.tickets) + len(rows), len(world.tickets) + len(common))


def either(world: World) -> Needed:
    """Of a ticket with two No, both answers; of any other, one Yes."""
    rows = [
        (row["id"],)
        for row in world.tickets
        if is_yes(RARE, body=row["body"]) or is_yes(COMMON, body=row["body"])
    ]
    total = len(world.tickets)
    return Needed(rows, total + (total - len(rows)), 2 * total)


def newest(world: World) -> Needed:
    """The summaries of the ten newest tickets."""
    first = sorted(world.tickets, key=lambda row: (-row["day"], row["id"]))[:SHOWN]
    rows = [(row["id"], text(SUMMARY, body=row["body"])) for row in first]
    return Needed(rows, SHOWN, len(world.tickets))


def most_urgent(world: World) -> Needed:
    """Every ticket's score, and the summaries of the ten highest."""

    def rank(row: Row) -> tuple[int, int]:
        return -int(text(SCORE, body=row["body"])), row["id"]

    first = sorted(world.tickets, key=rank)[:SHOWN]
    rows = [(row["id"], text(SUMMARY, body=row["body"])) for row in first]
    return Needed(rows, len(world.tickets) + SHOWN, 2 * len(world.tickets))


def join_on_plain(world: World) -> Needed:
    """Whether the names match, of each pair of the same country."""
    pairs = [
        (supplier["supplier"], other["customer"])
        for supplier in world.suppliers
        for other in world.customers
        if supplier["land"] == other["land"]
    ]
    rows = [pair for pair in pairs if is_yes(SAME, supplier=pair[0], customer=pair[1])]
    return Needed(list(rows), len(set(pairs)), len(pairs))


def join_as_classification(world: World) -> Needed:
    """Which customers match, of each supplier."""
    rows = [
        (supplier["supplier"], other["customer"])
        for supplier in world.suppliers
        for other in world.customers
        if is_yes(SAME, supplier=supplier["supplier"], customer=other["customer"])
    ]
    pairs = len(world.suppliers) * len(world.customers)
    return Needed(list(rows), len(world.suppliers), pairs)


def join_then_ask(world: World) -> Needed:
    """Whether each distinct review of a cheap product complains, and the kind of each distinct name
    of a product with such a review."""
    products = {row["product"]: row for row in world.products}
    cheap = [row for row in world.reviews if products[row["product"]]["price"] < 20]
    left = [row for row in cheap if is_yes(SHIPPING, review=row["review"])]
    names = [products[row["product"]]["name"] for row in left]
    rows = [(row["id"], text(KIND, name=name)) for row, name in zip(left, names, strict=True)]
    return Needed(rows, _distinct(cheap, "review") + len(set(names)), len(cheap) + len(left))


def outer_predicate(world: World) -> Needed:
    """The summaries of the tickets of the last days."""
    late = [row for row in world.tickets if row["day"] > 25]
    rows = [(row["id"], text(SUMMARY, body=row["body"])) for row in late]
    return Needed(rows, len(late), len(world.tickets))


def _distinct(rows: Iterable[Row], column: str) -> int:
    return len({row[column] for row in rows})
