"""A query of the paper on its three sides, and what their tokens would allow."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from benchmarks.queries.network import Reciting
from benchmarks.queries.paper.queries import Query
from benchmarks.timed_query import run_query
from benchmarks.turns import Turn, alternate
from relquery.backends.local.embedded import EmbeddedBackend
from relquery.config import EngineConfig, Order
from relquery.engine.cost import LinearCost
from relquery.report import Report

if TYPE_CHECKING:
    from relquery.model.served import ServedModel

NO_CACHE, TABLE_ORDER, OURS = "no cache", "cache, table order", "cache, ours"
SIDES: dict[str, tuple[Order, bool]] = {
    NO_CACHE: ("original", False),
    TABLE_ORDER: ("original", True),
    OURS: ("tree", True),
}
"""Order and prefix caching of each side: the last has the defaults."""
ENOUGH_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Ran:
    """A side's run of a query. seconds: of its turns. rows: of the result, and how often each."""

    report: Report
    seconds: float
    rows: Counter[tuple[object, ...]]

    @property
    def computed(self) -> int:
        """Prompt tokens that the cache did not serve."""
        return self.report.prompt_tokens - self.report.cached_tokens

    @property
    def decoded(self) -> int:
        """Answer tokens that took a step of their own: all but the first of each answer."""
        return self.report.output_tokens - self.report.calls


@dataclass(frozen=True, slots=True)
class Measured:
    """A query and its runs, by side."""

    query: Query
    ran: dict[str, Ran]
    costs: Costs

    @property
    def gain(self) -> float:
        """Seconds in table order over ours."""
        return self.over(TABLE_ORDER)

    def over(self, side: str) -> float:
        """Seconds of a side over ours."""
        return self.ran[side].seconds / self.ran[OURS].seconds

    @property
    def allowed(self) -> float:
        """The gain if only tokens took time: those that are computed, and those of answers."""
        table, ours = (
            self.costs.seconds(ran.computed, ran.decoded)
            for ran in (self.ran[TABLE_ORDER], self.ran[OURS])
        )
        return table / ours

    @property
    def same_rows(self) -> bool:
        """Whether all sides have the same result."""
        first, *rest = (ran.rows for ran in self.ran.values())
        return all(rows == first for rows in rest)

    @property
    def prompt_tokens(self) -> float:
        """Of a prompt, on average."""
        report = self.ran[OURS].report
        return report.prompt_tokens / report.calls


def measure(
    model: ServedModel, table: pa.Table, query: Query, shorter: int, costs: Costs, most: int = 1
) -> Measured:
    """Run the query on all sides in turn. shorter: see Call. costs: on this model.

    At most `most` times, until each side has taken ENOUGH_SECONDS; the medians count.
    """
    sql, tables = query.sql(shorter), {query.table: table}
    sides = {side: partial(serve, model, tables, query, sql, side) for side in SIDES}
    return Measured(query, in_turns(sides, most), costs)


def in_turns(sides: Mapping[str, Callable[[Turn], Ran]], most: int = 1) -> dict[str, Ran]:
    """Runs of all sides that take turns, with the median seconds of at most `most` rounds; no
    further round once each side has taken ENOUGH_SECONDS."""
    rounds: list[dict[str, Ran]] = []
    while len(rounds) < most and _least(rounds) < ENOUGH_SECONDS:
        gc.collect()  # a quarter of a second, which would fall on one of the sides by chance
        rounds.append(alternate(sides))
    return {side: _median([each[side] for each in rounds]) for side in sides}


def _least(rounds: list[dict[str, Ran]]) -> float:
    """Seconds of the quickest side in all rounds."""
    if not rounds:
        return 0.0
    return min(sum(each[side].seconds for each in rounds) for side in rounds[0])


def _median(runs: list[Ran]) -> Ran:
    """A run with the median of the seconds of all."""
    return replace(runs[0], seconds=median(run.seconds for run in runs))


def serve(
    model: ServedModel,
    tables: Mapping[str, pa.Table],
    query: Query,
    sql: str,
    side: str,
    turn: Turn,
) -> Ran:
    """Run `sql`, answered as the query's calls are, on one of SIDES."""
    order, caching = SIDES[side]
    result, seconds = run_query(
        model,
        tables,
        sql,
        turn,
        make=partial(Reciting, query.answer),
        config=EngineConfig(prefix_caching=caching),
        order=order,
    )
    return Ran(result.report, seconds, Counter(result.fetchall()))


class Costs(NamedTuple):
    """Seconds of a prompt token and of an answer token, each in a step that is full of them."""

    prompt: float
    decoded: float

    @classmethod
    def of(cls, cost: LinearCost, config: EngineConfig) -> Costs:
        """By the linear cost model. Attending to cached tokens counts as nothing."""
        tokens, requests = config.max_num_batched_tokens, config.max_num_seqs
        return cls(cost.seconds(tokens, 0) / tokens, cost.seconds(0, requests) / requests)

    def seconds(self, computed: int, decoded: int) -> float:
        """Of so many prompt tokens that are computed, and answer tokens."""
        return self.prompt * computed + self.decoded * decoded


def calibrate(model: ServedModel, seed: int) -> Costs:
    """Measure them on the engine, as `relquery calibrate` does."""
    config = EngineConfig()
    backend = EmbeddedBackend(model, config)
    try:
        return Costs.of(backend.calibrate(seed=seed).cost, config)
    finally:
        backend.close()
