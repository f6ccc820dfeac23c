"""Plans one SELECT with calls: base rows, filters, calls, and the query over their answers.

Calls with equal prompt, fields and sampling are one call, wherever they appear, and run once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from relquery.errors import UnsupportedQueryError
from relquery.sql import names as ours
from relquery.sql.binder.call import FIELD_NAME, Call, calls_in, has_call, readable
from relquery.sql.binder.functions import FunctionCatalog, clauses_of, has_window
from relquery.sql.binder.normalize import unnamed
from relquery.sql.binder.scopes import Context
from relquery.sql.binder.sources import Sources, from_only, star_columns
from relquery.sql.host.database import Database
from relquery.sql.parser import build
from relquery.sql.parser.tree import Expression, Limit, Node, Order, Select, Star
from relquery.sql.planner.checks import Check, checks_in
from relquery.sql.planner.fields import Field, declared_keys, name_fields, needs_in, sides_of
from relquery.sql.planner.guards import Condition, conditions_of
from relquery.sql.planner.limits import cut_of, in_base_order, limits_early, stops_by_group
from relquery.sql.planner.plan import Cut, Filter, Part, PlannedCall, SelectPlan
from relquery.sql.planner.split import Lifter, note_wholes


@dataclass(frozen=True, slots=True)
class Scope:
    """The context for planning a SELECT. columns: (name, type) of its result."""

    database: Database
    context: Context
    sources: Sources
    functions: FunctionCatalog
    columns: tuple[tuple[str, str], ...]


def plan_select(select: Select, scope: Scope) -> SelectPlan:
    """Plan a normalized SELECT.

    Raises QueryError for a malformed call, UnsupportedQueryError for an unsupported form.
    """
    functions, names = scope.functions, [name for name, _ in scope.columns]
    qualified = _take_qualify(select, functions)
    _name_calls(select)
    note_wholes(select, functions)
    calls = _Calls(select, scope)
    predicates = build.conjuncts(select.where)
    filters = tuple(calls.filter(part) for part in predicates if has_call(part))
    given = cut_of(select, names, functions)
    is_early = limits_early(given)
    limits = given if is_early and not filters else None
    stops = is_early or (bool(filters) and stops_by_group(given))
    cut = None if limits is not None else _cut(select, given, calls, stops=stops)
    rest = select.copy()
    rest.source, rest.where, rest.sample = build.table(ours.ROWS), None, None
    if limits is not None:
        build.set_modifier(rest, Order, None)
        build.set_modifier(rest, Limit, None)
    elif cut is not None:
        rest.qualify = None
        rest.set("modifiers", None if select.order is None else [select.order.copy()])
    final = _over_rows(rest, names, calls.lifter)
    if cut is not None and final.order is not None:
        build.set_modifier(final, Order, in_base_order(final.order))
    plain = [part for part in predicates if not has_call(part)]
    return SelectPlan(
        base=_base(select, calls.lifter, plain, qualified, limits),
        calls=tuple(calls.planned),
        filters=filters,
        cut=cut,
        outputs=calls.part(list(clauses_of(rest)), rest, [final]),
        aggregated=functions.in_select(select),
        final=final,
        context=scope.context,
        columns=scope.columns,
    )


def _take_qualify(select: Select, functions: FunctionCatalog) -> list[Expression]:
    """Take QUALIFY apart, in place: conditions without calls, which then go first, are returned,
    and those with calls become conditions of WHERE.

    That needs window functions that see no answers, and nothing else that sees dropped rows.
    """
    parts = build.conjuncts(select.qualify)
    asking = [part for part in parts if has_call(part)]
    plain = [part for part in parts if not has_call(part)]
    others = [*asking, *select.items, *select.modifiers]
    if not asking or not any(map(has_window, plain)) or any(map(has_window, others)):
        return []
    if has_call(select.where) or functions.in_select(select) or functions.is_volatile(select):
        return []
    select.qualify = None
    build.add_where(select, *asking)
    return plain


def _name_calls(select: Select) -> None:
    """Note on every call of a normalized SELECT its name as a field of another one.

    Copies keep notes but lose parents. The name contains the number of the first equal call.
    """
    first: dict[str, int] = {}
    for call in sorted(calls_in(select), key=lambda call: call.number):
        number = first.setdefault(call.key, call.number)
        call.meta.setdefault(FIELD_NAME, f"llm_{number + 1}")


def _cut(select: Select, given: Select | None, calls: _Calls, stops: bool) -> Cut | None:
    """What decides which rows a SELECT returns, if this saves calls."""
    if given is None:
        return None
    known = {call.key for call in calls_in(given)}
    if not stops and all(call.key in known for item in select.items for call in calls_in(item)):
        return None
    cut = Select(select_list=[build.column(ours.ROW)], from_table=build.table(ours.ROWS))
    if given.qualify is not None:
        cut.qualify = calls.lifter.rewrite(given.qualify)
    cut.set("modifiers", [calls.lifter.rewrite(one) for one in given.modifiers] or None)
    build.set_modifier(cut, Order, in_base_order(cut.order))
    return Cut(cut, calls.part([given], given, [cut]), stops)


def _over_rows(select: Select, names: list[str], lifter: Lifter) -> Select:
    """A SELECT over materialised rows, its columns named."""
    final = select.copy()
    final.items = [
        lifter.rewrite(item).named(name) for item, name in zip(select.items, names, strict=True)
    ]
    for clause in ("group_expressions", "having", "qualify", "modifiers"):
        value = select.args.get(clause)
        if isinstance(value, list):
            final.set(clause, [lifter.rewrite(one) for one in value])
        elif value is not None:
            final.set(clause, lifter.rewrite(value))
    return final


def _base(
    select: Select,
    lifter: Lifter,
    predicates: list[Expression],
    qualified: list[Expression],
    limits: Select | None,
) -> Select:
    base = from_only(select, lifter.base.items() or [build.null().named(ours.NOTHING)])
    if predicates:
        base.where = build.all_of(part.copy() for part in predicates)
    if qualified:
        base.qualify = build.all_of(part.copy() for part in qualified)
    if limits is not None:
        base.set("modifiers", [one.copy() for one in limits.modifiers])
    return base


def _distinct(checks: list[Check]) -> tuple[Check, ...]:
    """The checks without duplicates."""
    found = {
        (one.failed.key, one.value.key, one.note.kind, one.note.later): one
        for one in reversed(checks)
    }
    return tuple(reversed(found.values()))


@dataclass(slots=True)
class _Calls:
    """The distinct calls of one SELECT, collected while its expressions are rewritten."""

    select: Select
    scope: Scope
    planned: list[PlannedCall] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    lifter: Lifter = field(init=False)
    _identities: dict[object, int] = field(default_factory=dict)
    _by_key: dict[str, int] = field(default_factory=dict)
    _used: dict[int, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        scope = self.scope
        names = frozenset(name.lower() for name, _ in scope.columns)
        self.lifter = Lifter(scope.database, scope.context, scope.sources, names, self._answer)

    def filter(self, predicate: Expression) -> Filter:
        """Plan a predicate as a stage of its own."""
        rewritten = self.lifter.rewrite(predicate)
        return Filter(rewritten, self.part([predicate], predicate, [rewritten]))

    def part(self, written: Sequence[Node], top: Node, read: list[Node]) -> Part:
        """The calls found since the last part. written: the nodes below `top` that have them;
        read: the same, over materialised rows.
        """
        used, self._used = tuple(self._used), {}
        places: dict[int, list[tuple[Condition, ...]]] = {}
        for call in (found for node in written for found in calls_in(node)):
            index = self._by_key.get(call.key)
            if index in used and index is not None:
                conditions = conditions_of(call, top, self.scope.functions, where_it_counts=True)
                over_rows = (self._over_rows(one) for one in conditions)
                places.setdefault(index, []).append(tuple(over_rows))
        for node in read:
            self.checks += (check for _, check in checks_in(node, self.scope.functions))
        checks, self.checks, self._used = _distinct(self.checks), [], {}
        return Part(used, places, checks)

    def _over_rows(self, condition: Condition) -> Condition:
        return replace(condition, holds=self.lifter.rewrite(condition.holds))

    def _answer(self, node: Call) -> Expression:
        """Plan a call and return the column of its answers."""
        sources, functions = self.scope.sources, self.scope.functions
        task = node.task
        written = [(at, one) for at, field in enumerate(node.fields) for one in self._expand(field)]
        given = [
            Field.of(one, self._field(one), sources, at in node.modules, at in node.bags)
            for at, one in written
        ]
        fields = name_fields(given, keep=task.has_places)
        if task.kind == "match":
            sides = sides_of([one for _, one in written], sources, node.written)
            task = replace(task, sides=sides)
        asked = tuple((one.name, one.value.key, one.is_module, one.is_bag) for one in fields)
        index = self._identities.setdefault((task, asked), len(self.planned))
        if index == len(self.planned):
            needs = needs_in([one.value for one in given], functions)
            entries = [entry.name for entry in self.scope.context.entries]
            keys = declared_keys(self.select, fields, entries, self.scope.database)
            self.planned.append(PlannedCall(index, node.written, task, fields, needs, keys))
        self._used[index] = None
        self._by_key[node.key] = index
        column = build.column(ours.answer(index))
        column.meta.update(node.meta)
        column.meta.pop("task", None)
        return column

    def _expand(self, argument: Expression) -> Iterable[Expression]:
        """A field, or the columns of a star."""
        if not isinstance(argument, Star):
            return [argument]
        scope = self.scope
        return star_columns(argument, scope.sources, scope.database, self.select, scope.context)

    def _field(self, argument: Expression) -> Expression:
        for found in self.scope.functions.inside(argument):
            raise UnsupportedQueryError(
                f"{readable(found)} is inside an LLM call. Aggregate in a subquery and call "
                "LLM on its rows: SELECT LLM('...', total) FROM (SELECT sum(x) AS total FROM t)."
            )
        if has_window(argument):
            raise UnsupportedQueryError(
                "A window function is inside an LLM call. Compute it in a subquery and "
                "call LLM on its rows."
            )
        # Lift its columns, not the whole expression: the rest is computed only for rows asked.
        value = self.lifter.rewrite_field(unnamed(argument))
        self.checks += (check for _, check in checks_in(value, self.scope.functions))
        return value
