"""A query of the paper on its three sides, and what their tokens would allow."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks.queries.paper.queries import Query
from benchmarks.queries.paper.steps import Costs, Step, fit, recorded
from benchmarks.queries.reciting import Reciting
from benchmarks.timed_query import run_query
from benchmarks.turns import Turn, alternate
from relquery.config import EngineConfig, Order
from relquery.report import Report

if TYPE_CHECKING:
    from relquery.model.networks.load import LoadedModel

NO_CACHE, TABLE_ORDER, OURS = "no cache", "cache, table order", "cache, ours"
SIDES: dict[str, tuple[Order, bool]] = {
    NO_CACHE: ("original", False),
    TABLE_ORDER: ("original", True),
    OURS: ("tree", True),
}
"""Order and prefix caching of each side: the last has the defaults."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A side's run of a query. seconds: of its turns. rows: of the result, and how often each."""

    report: Report
    seconds: float
    steps: tuple[Step, ...]
    rows: Counter[tuple[object, ...]]

    @property
    def computed(self) -> int:
        """Prompt tokens that the cache did not serve."""
        return self.report.prompt_tokens - self.report.cached_tokens

    @property
    def decoded(self) -> int:
        """Answer tokens that took a step of their own: all but the first of each answer."""
        return self.report.output_tokens - self.report.calls

    @property
    def between(self) -> float:
        """Seconds outside steps: reading, planning, ordering, tokenizing, casting answers."""
        return self.seconds - sum(step.seconds for step in self.steps)


@dataclass(frozen=True, slots=True)
class Measured:
    """A query and its runs, by side."""

    query: Query
    ran: dict[str, Ran]

    @property
    def gain(self) -> float:
        """Seconds in table order over ours."""
        return self.over(TABLE_ORDER)

    def over(self, side: str) -> float:
        """Seconds of a side over ours."""
        return self.ran[side].seconds / self.ran[OURS].seconds

    @property
    def costs(self) -> Costs:
        """A prompt token's where nothing is cached, and an answer token's where most is shared."""
        alone, shared = fit(self.ran[NO_CACHE].steps), fit(self.ran[OURS].steps)
        return Costs(alone.prompt, shared.decoded)

    @property
    def allowed(self) -> float:
        """The gain if tokens that are computed took their costs, and all else no time."""
        table, ours = (
            self.costs.seconds(at.computed, at.decoded)
            for at in (self.ran[TABLE_ORDER], self.ran[OURS])
        )
        return table / ours

    @property
    def same_rows(self) -> bool:
        """Whether all sides have the same result."""
        first, *rest = (at.rows for at in self.ran.values())
        return all(rows == first for rows in rest)

    @property
    def prompt_tokens(self) -> float:
        """Of a prompt, on average."""
        report = self.ran[OURS].report
        return report.prompt_tokens / report.calls


def measure(model: LoadedModel, table: pa.Table, query: Query, shorter: int) -> Measured:
    """Run the query on all sides in turn. shorter: see Call."""
    sides = {side: partial(_serve, model, table, query, shorter, side) for side in SIDES}
    return Measured(query, alternate(sides))


def _serve(
    model: LoadedModel, table: pa.Table, query: Query, shorter: int, side: str, turn: Turn
) -> Ran:
    order, caching = SIDES[side]
    steps: list[Step] = []
    result, seconds = run_query(
        model,
        table,
        query.sql(shorter),
        turn,
        name=query.table,
        make=partial(Reciting, query.answer),
        watch=lambda engine: recorded(engine, turn, steps),
        config=EngineConfig(prefix_caching=caching),
        order=order,
    )
    return Ran(result.report, seconds, tuple(steps), Counter(result.fetchall()))
