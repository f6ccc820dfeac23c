"""Counts the calls of a query on the stand-in for a model."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import dataclass

from benchmarks.queries.calls.cases import Case
from benchmarks.queries.calls.oracles import Needed
from benchmarks.queries.calls.world import StandIn, World
from relquery.backends.base import Backend
from relquery.connection import Connection, connect
from relquery.errors import QueryError


@dataclass(frozen=True, slots=True)
class Counted:
    """A query's calls. calls: None for a query that was refused, for which `refusal` says why.
    right: whether its rows are those of the naive plan."""

    case: Case
    needed: Needed
    calls: int | None
    right: bool
    refusal: str = ""

    @property
    def over(self) -> float | None:
        """Calls over the oracle's."""
        return None if self.calls is None else self.calls / self.needed.calls


def count(case: Case, world: World) -> Counted:
    """Run the query, and count what it asks. Its answers are kept for no other query."""
    backend, needed = StandIn(), case.oracle(world)
    with closing(opened(backend, world)) as connection:
        try:
            rows = connection.sql(case.sql).fetchall()
        except QueryError as error:
            return Counted(case, needed, None, False, str(error).splitlines()[0])
    right = rows == needed.rows if case.ordered else Counter(rows) == Counter(needed.rows)
    return Counted(case, needed, len(backend.asked), right)


def opened(backend: Backend, world: World) -> Connection:
    """A connection with the world's tables, and without a ledger."""
    connection = connect(backend, form="json", ledger=None)
    for name, rows in world.tables():
        connection.register(name, rows)
    return connection
