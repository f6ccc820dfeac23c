"""Calls of twelve queries against an oracle that knows every answer beforehand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import dataclass, field

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.queries.calls.cases import CASES, CLASSIFIED, Case
from benchmarks.queries.calls.oracles import Needed
from benchmarks.queries.calls.world import SHARES, StandIn, World, build
from benchmarks.queries.sizes import FULL, Sizes, choose
from benchmarks.templates import template
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


WORDS = template("queries")

GOAL = 1.3


@dataclass(slots=True)
class Calls(Part):
    """The part."""

    name = "calls"
    title = "Calls against an oracle"
    sizes: Sizes = FULL
    found: list[Counted] = field(default_factory=list)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        self.sizes = choose(settings.quick)
        world = build(self.sizes.rows_asked, settings.seed)
        for case in (*CASES, CLASSIFIED):
            self.found.append(counted := count(case, world))
            yield from figures(counted)
        right = sum(counted.right for counted in self.found)
        note = f"{right} of {len(self.found)} queries have the rows of the naive plan"
        yield Figure("calls_same_rows", right / len(self.found), 1.0, note=note, any_size=True)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        shares = ", ".join(f"{share:g} for *{prompt}*" for prompt, share in SHARES.items())
        yield WORDS.block("calls", tickets=self.sizes.rows_asked, shares=shares)
        yield from table(
            ("query", "calls", "oracle", "one per row", "over the oracle"),
            [cells(counted) for counted in self.found],
        )
        yield WORDS.block("calls_queries")
        yield from table(
            ("query", "SQL", "its result depends on"),
            [
                (f"`{counted.case.name}`", f"`{counted.case.sql}`", counted.case.depends)
                for counted in self.found
            ],
        )


def figures(at: Counted) -> Iterator[Figure]:
    """Calls over the oracle's, and calls where a query has a bound of its own."""
    note = at.refusal or f"{at.calls:,} calls; oracle {at.needed.calls:,}"
    name = at.case.name
    yield Figure(f"calls_{name}", at.over, GOAL, at_least=False, note=note, any_size=True)
    if at.case.most is not None:
        calls = None if at.calls is None else float(at.calls)
        note = at.refusal or f"one per row: {at.needed.per_row:,}"
        yield Figure(f"most_{name}", calls, at.case.most, at_least=False, note=note, any_size=True)


def cells(at: Counted) -> tuple[str, ...]:
    """The line of a query."""
    return (
        f"`{at.case.name}`",
        "refused" if at.calls is None else f"{at.calls:,}",
        f"{at.needed.calls:,}",
        f"{at.needed.per_row:,}",
        "-" if at.over is None else f"{at.over:.2f}",
    )
