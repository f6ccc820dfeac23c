"""The twelve queries whose calls are counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.queries.calls import oracles
from benchmarks.queries.calls.oracles import SHOWN, Needed
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
    World,
)

Oracle = Callable[[World], Needed]


@dataclass(frozen=True, slots=True)
class Case:
    """A query, and what its result depends on. most: calls that it may take, whatever the oracle
    takes; None for no such bound. ordered: its rows have an order. stops_early: how many calls it
    takes depends on their answers."""

    sql: str
    oracle: Oracle
    most: int | None = None
    ordered: bool = False
    stops_early: bool = False

    @property
    def name(self) -> str:
        """The oracle's."""
        return self.oracle.__name__

    @property
    def depends(self) -> str:
        """What the result depends on, in words."""
        return " ".join((self.oracle.__doc__ or "").split())


CASES = (
    Case(f"SELECT id, LLM('{MOOD}', review) FROM reviews", oracles.every_review),
    Case(
        f"SELECT id, LLM('{MOOD}', review) FROM reviews WHERE LLM('{SHIPPING}', review) = 'Yes'",
        oracles.filter_and_projection,
    ),
    Case(
        f"SELECT id FROM reviews WHERE LLM('{SHIPPING}', review) = 'Yes' AND stars <= 2",
        oracles.plain_and,
    ),
    Case(
        f"SELECT id FROM reviews WHERE LLM('{SHIPPING}', review) = 'Yes' OR stars = 5",
        oracles.plain_or,
    ),
    Case(
        f"SELECT id FROM tickets WHERE LLM('{URGENT}', body) = 'Yes' LIMIT {SHOWN}",
        oracles.limit,
        most=60,
        stops_early=True,
    ),
    Case(
        f"SELECT id FROM tickets WHERE LLM('{COMMON}', body) = 'Yes' "
        f"AND LLM('{RARE}', body) = 'Yes'",
        oracles.both,
        stops_early=True,
    ),
    Case(
        f"SELECT id FROM tickets WHERE LLM('{RARE}', body) = 'Yes' "
        f"OR LLM('{COMMON}', body) = 'Yes'",
        oracles.either,
        stops_early=True,
    ),
    Case(
        f"SELECT id, LLM('{SUMMARY}', body) FROM tickets ORDER BY day DESC, id LIMIT {SHOWN}",
        oracles.newest,
        ordered=True,
    ),
    Case(
        f"SELECT id, LLM('{SUMMARY}', body) FROM tickets "
        f"ORDER BY LLM('{SCORE}', body)::INTEGER DESC, id LIMIT {SHOWN}",
        oracles.most_urgent,
        ordered=True,
    ),
    Case(
        "SELECT supplier, customer FROM suppliers JOIN customers "
        "ON suppliers.land = customers.land "
        f"AND LLM('{SAME}', supplier, customer) = 'Yes'",
        oracles.join_on_plain,
        most=120,
    ),
    Case(
        f"SELECT id, LLM('{KIND}', name) FROM reviews JOIN products USING (product) "
        f"WHERE LLM('{SHIPPING}', review) = 'Yes' AND price < 20",
        oracles.join_then_ask,
    ),
    Case(
        f"SELECT id, summary FROM (SELECT id, day, LLM('{SUMMARY}', body) AS summary "
        "FROM tickets) WHERE day > 25",
        oracles.outer_predicate,
    ),
)
"""Each at most 1.3 times the calls of its oracle."""

CLASSIFIED = Case(
    "SELECT supplier, customer FROM suppliers JOIN customers "
    f"ON AI_FILTER('{SAME}', supplier, customer, classify := true)",
    oracles.join_as_classification,
    most=30,
)
"""A join that asks about each supplier and all customers at once."""
