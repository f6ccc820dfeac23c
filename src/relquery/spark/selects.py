"""Runs the plan of a statement over Spark, the inner SELECTs first."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from relquery.spark.calls import Calls, SparkSettings
from relquery.spark.record import Record
from relquery.spark.shadow import Shadow
from relquery.spark.state import SparkState
from relquery.spark.store import Store
from relquery.sql import names as ours
from relquery.sql.executor.choices import SAMPLE, SEED, Seen, rank, rows_to_limit
from relquery.sql.executor.order import CallStep, cost_of_text, steps_of
from relquery.sql.parser import build
from relquery.sql.parser.tree import Constant, Expression, Limit, Order, Select
from relquery.sql.planner.plan import CallGroup, Filter, PlannedCall, SelectPlan
from relquery.sql.planner.statement import StatementPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CHARACTERS = 200  # of the fields of an input, as long as they are not known


def run(
    plan: StatementPlan, settings: SparkSettings, shadow: Shadow, record: Record, store: Store
) -> DataFrame:
    """The rows of a statement.

    store: with one without a folder nothing is asked and nothing runs, but Spark checks all of it.
    """
    kinds: Counter[str] = Counter()
    for select in plan.selects:
        state = SparkState.of(select, plan.bound.functions, shadow, store)
        if store.folder is None:
            state = _checked(state)
        else:
            state = _Run(Calls(settings, record, store.folder), select, kinds).all(state)
            store.keep(state.frame)
        frame = state.view(select.final)
        if select.table:
            if store.folder is None:
                frame = shadow.spark.createDataFrame([], frame.schema)
            # Spark joins no rows that tasks of Python make.
            shadow.tables[select.table] = shadow.publish(store.keep(store.written(frame)))
    if plan.outer is not None:
        frame = shadow.run(plan.outer)
    return frame.toDF(*(name for name, _ in plan.bound.columns))


def _checked(state: SparkState) -> SparkState:
    """The rows of a SELECT as they are planned, without answers. Raises what Spark raises."""
    plan = state.plan
    for call in plan.calls:
        state.texts(call.fields)
    for part in plan.parts:
        state.checked(part.checks)
    for condition in plan.filters:
        state = state.where(condition.predicate)
    if plan.cut is not None:
        state.view(plan.cut.select)
    return state


@dataclass(slots=True)
class _Run:
    """One SELECT. kinds: of the statement's stages. names: of its stages, by part and call."""

    calls: Calls
    plan: SelectPlan
    kinds: Counter[str]
    _names: dict[tuple[int, int], str] = field(default_factory=dict)
    _last: dict[int, str] = field(default_factory=dict)

    def all(self, state: SparkState) -> SparkState:
        """The rows that the SELECT returns, with all answers."""
        plan = self.plan
        if plan.filters:
            state = self._until_enough(state) or self._filtered(state, self._in_order(state))
        if plan.cut is not None:
            state = self._cut(self.ask(plan.cut.part, state, plan.kind))
        return self.ask(plan.outputs, state, plan.kind)

    def ask(self, part: CallGroup, state: SparkState, kind: str) -> SparkState:
        """Ask the calls of a part for the rows that need them."""
        for step in steps_of(part, self.plan.inner, _Costs(self.plan.calls)):
            state = self._step(step, part, state, kind)
        return state

    def _step(self, step: CallStep, part: CallGroup, state: SparkState, kind: str) -> SparkState:
        call = self.plan.calls[step.call]
        name = self._last[step.call] = self._name(part, step.call, kind)
        texts = [text for text, _ in state.texts(call.fields)]
        state = self.calls.ask(name, call, state, state.asked(call, step.where, texts))
        if step.checks:
            checked = state.checked(step.checks).written()
            self.calls.record.check(name, step.checks, state, checked)
            state = checked
        return state

    def _name(self, part: CallGroup, call: int, kind: str) -> str:
        if (id(part), call) not in self._names:
            self.kinds[kind] += 1
            self._names[id(part), call] = f"{kind} {self.kinds[kind]}"
        return self._names[id(part), call]

    def _filtered(self, state: SparkState, filters: list[Filter]) -> SparkState:
        """The rows that pass all filters."""
        for condition in filters:
            state = self.ask(condition.part, state, "filter").where(condition.predicate)
        return state

    def _in_order(self, state: SparkState) -> list[Filter]:
        """The filters, those first that drop the most rows for what they cost.

        A sample shows it. Its answers count: no input is asked twice.
        """
        filters = list(self.plan.filters)
        total = state.frame.count() if len(filters) > 1 else 0
        if total <= SAMPLE:
            return filters
        share = min(1.0, 3 * SAMPLE / total)
        sample = replace(state, frame=state.frame.sample(False, share, SEED).limit(SAMPLE)).held()
        tried, ranks = sample.frame.count(), {}
        for condition in filters:
            sample = self.ask(condition.part, sample, "filter").where(condition.predicate)
            passed = sample.frame.count()
            cost = sum(_cost(self.plan.calls[call]) for call in condition.part.calls)
            ranks[id(condition)] = rank(cost, Seen(tried, passed).selectivity)
            tried = passed
        return sorted(filters, key=lambda one: ranks[id(one)])

    def _until_enough(self, state: SparkState) -> SparkState | None:
        """The first rows that pass all filters, as many as a LIMIT needs; None if all are needed.

        Those after them are not asked about.
        """
        cut = self.plan.cut
        enough = None if cut is None or not cut.stops else _rows_needed(cut.select)
        if cut is None or enough is None:
            return None
        filters, total = self._in_order(state), state.frame.count()
        seen = Seen()
        size = min(total, rows_to_limit(enough, seen))
        first = build.select([build.star()], ours.ROWS)
        build.set_modifier(first, Order, cut.select.order)
        while True:
            build.set_modifier(first, Limit, Limit(limit=build.number(size)))
            some = replace(state, frame=state.view(first)).held()
            passed = self._filtered(some, filters).held()
            seen = Seen(size, passed.frame.count())
            if size >= total or seen.passed >= enough:
                return passed
            size = min(total, size + rows_to_limit(enough - seen.passed, seen))

    def _cut(self, state: SparkState) -> SparkState:
        """The rows that the SELECT returns, of those that pass the filters."""
        assert self.plan.cut is not None
        kept = state.view(self.plan.cut.select)
        return replace(state, frame=state.frame.join(kept, ours.ROW, "left_semi")).held()


@dataclass(frozen=True, slots=True)
class _Costs:
    """The costs of calls by their texts; see executor.order.Costs."""

    calls: tuple[PlannedCall, ...]

    def of(self, call: int) -> float:
        return _cost(self.calls[call])

    def share(self, condition: Expression, call: int) -> float:
        del condition, call
        return Seen().selectivity


def _cost(call: PlannedCall) -> float:
    return cost_of_text(call, _CHARACTERS * len(call.fields))


def _rows_needed(cut: Select) -> int | None:
    """How many rows must pass the filters for LIMIT and OFFSET; None if this is not written."""
    limit = cut.limit
    if limit is None or limit.limit is None or limit.is_share:
        return None
    numbers = [number for number in (limit.limit, limit.offset) if number is not None]
    if not all(isinstance(number, Constant) and number.text.isdigit() for number in numbers):
        return None
    return sum(int(number.text) for number in numbers if isinstance(number, Constant))
