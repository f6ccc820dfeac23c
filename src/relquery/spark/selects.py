"""Runs the SELECTs of a statement that have calls over Spark, the inner ones first."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from sqlglot import exp

from relquery.errors import UnsupportedQueryError
from relquery.spark.calls import Calls, Settings
from relquery.spark.planning.dialect import to_spark
from relquery.spark.planning.shadow import Shadow
from relquery.spark.record import Record
from relquery.spark.state import State
from relquery.spark.store import Store
from relquery.sql import names as ours
from relquery.sql.plan.asking import Part, Step, steps_of
from relquery.sql.plan.planner import Filter, PlannedCall, SelectPlan
from relquery.sql.read.aggregates import Aggregates
from relquery.sql.read.scopes import Context
from relquery.sql.read.source import to_sql
from relquery.sql.walk.choices import SAMPLE, SEED, Seen, rank, rows_to_limit
from relquery.sql.walk.costs import cost_of_text

_CHARACTERS = 200  # of the fields of an input, as long as they are not known


@dataclass(slots=True)
class SparkSelects:
    """See walk.selecting.Selects.

    store: one without a folder asks nothing and runs nothing, but has Spark check all of it.
    """

    settings: Settings
    shadow: Shadow
    aggregates: Aggregates
    record: Record
    store: Store

    def select(self, plan: SelectPlan, context: Context, kinds: Counter[str]) -> State:
        """See Selects."""
        base = self.settings.spark.sql(to_spark(context.sql(to_sql(plan.base))))
        state = State.of(plan, context, self.shadow, self.aggregates, base, self.store)
        if self.store.folder is None:
            return _checked(state)
        run = _Run(Calls(self.settings, self.record, self.store.folder), plan, kinds)
        done = run.all(state)
        self.store.keep(done.frame)
        return done

    def table(self, rows: State) -> str:
        """See Selects."""
        spark = self.settings.spark
        frame = spark.sql(to_spark(self.final(rows)))
        if self.store.folder is None:
            return self.shadow.publish(spark.createDataFrame([], frame.schema))
        # Spark joins no rows that tasks of Python make.
        return self.shadow.publish(self.store.keep(self.store.written(frame)))

    def final(self, rows: State) -> str:
        """See Selects."""
        return rows.view(rows.plan.final)


def _checked(state: State) -> State:
    """The rows of a SELECT as they are planned, without answers. Raises what Spark raises."""
    plan = state.plan
    for call in plan.calls:
        state.texts(call.fields)
    for part in plan.parts:
        state.checked(part.checks)
    for one in plan.filters:
        state = state.where(one.predicate)
    if plan.cut is not None:
        state.shadow.spark.sql(to_spark(state.view(plan.cut.select)))
    return state


@dataclass(slots=True)
class _Run:
    """One SELECT. kinds: of the statement's stages. names: of its stages, by part and call."""

    calls: Calls
    plan: SelectPlan
    kinds: Counter[str]
    _names: dict[tuple[int, int], str] = field(default_factory=dict)
    _last: dict[int, str] = field(default_factory=dict)

    def all(self, state: State) -> State:
        """The rows that the SELECT returns, with all answers."""
        plan = self.plan
        if plan.filters:
            state = self._until_enough(state) or self._filtered(state, self._in_order(state))
        if plan.cut is not None:
            state = self._cut(self.ask(plan.cut.part, state, plan.kind))
        return self.ask(plan.outputs, state, plan.kind)

    def ask(self, part: Part, state: State, kind: str) -> State:
        """Ask the calls of a part for the rows that need them."""
        calls = self.plan.calls
        inner = {call.index: frozenset(need.call for need in call.needs) for call in calls}
        for step in steps_of(part, inner, _Costs(calls)):
            state = self._step(step, part, state, kind)
        return state

    def _step(self, step: Step, part: Part, state: State, kind: str) -> State:
        call = self.plan.calls[step.call]
        name = self._last[step.call] = self._name(part, step.call, kind)
        texts = [text for text, _ in state.texts(call.fields)]
        state = self.calls.ask(name, call, state, state.asked(call, step.where, texts))
        if step.checks:
            checked = state.checked(step.checks).written()
            self.calls.record.check(name, step.checks, state, checked)
            state = checked
        return state

    def _name(self, part: Part, call: int, kind: str) -> str:
        if (id(part), call) not in self._names:
            self.kinds[kind] += 1
            self._names[id(part), call] = f"{kind} {self.kinds[kind]}"
        return self._names[id(part), call]

    def _filtered(self, state: State, filters: list[Filter]) -> State:
        """The rows that pass all filters."""
        for one in filters:
            state = self.ask(one.part, state, "filter").where(one.predicate)
        return state

    def _in_order(self, state: State) -> list[Filter]:
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
        for one in filters:
            sample = self.ask(one.part, sample, "filter").where(one.predicate)
            passed = sample.frame.count()
            cost = sum(_cost(self.plan.calls[call]) for call in one.part.calls)
            ranks[id(one)] = rank(cost, Seen(tried, passed))
            tried = passed
        return sorted(filters, key=lambda one: ranks[id(one)])

    def _until_enough(self, state: State) -> State | None:
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
        order = exp.select("*").from_(ours.ROWS).limit(size)
        order.set("order", cut.select.args["order"])
        while True:
            some = self._over(order.limit(size), state).held()
            passed = self._filtered(some, filters).held()
            seen = Seen(size, passed.frame.count())
            if size >= total or seen.passed >= enough:
                return passed
            size = min(total, size + rows_to_limit(enough - seen.passed, seen))

    def _cut(self, state: State) -> State:
        """The rows that the SELECT returns, of those that pass the filters."""
        assert self.plan.cut is not None
        spark = self.calls.settings.spark
        kept = spark.sql(to_spark(state.view(self.plan.cut.select)))
        return replace(state, frame=state.frame.join(kept, ours.ROW, "left_semi")).held()

    def _over(self, select: exp.Select, state: State) -> State:
        spark = self.calls.settings.spark
        return replace(state, frame=spark.sql(to_spark(state.view(select))))


@dataclass(frozen=True, slots=True)
class _Costs:
    """What calls cost by their texts; see plan.asking.Costs."""

    calls: tuple[PlannedCall, ...]

    def of(self, call: int) -> float:
        return _cost(self.calls[call])

    def share(self, condition: exp.Expr, call: int) -> float:
        del condition, call
        return Seen().selectivity


def _cost(call: PlannedCall) -> float:
    return cost_of_text(call, _CHARACTERS * len(call.fields))


def _rows_needed(cut: exp.Select) -> int | None:
    """How many rows must pass the filters for LIMIT and OFFSET; None if this is not written."""
    count = 0
    for name in ("limit", "offset"):
        node = cut.args.get(name)
        if node is None:
            if name == "limit":
                return None
            continue
        number = node.expression
        if node.args.get("limit_options") or not isinstance(number, exp.Literal):
            return None
        if number.is_string or not number.this.isdigit():
            return None
        count += int(number.this)
    return count


def check_query(tree: exp.Expr) -> None:
    """Raises UnsupportedQueryError for a statement with calls that is no query."""
    if not isinstance(tree, exp.Query):
        raise UnsupportedQueryError(
            f"Over Spark a statement with LLM calls must be a query, not {tree.key.upper()}. Write "
            "the DataFrame: con.sql('SELECT ...').write.saveAsTable('answers')."
        )
