"""The planning of one SELECT with calls: base rows, filters, calls, and the query over their
answers.

Calls with equal prompt, fields and sampling are one call, wherever they appear, and run once. Every
part that DuckDB must compute from the FROM clause (a column, a correlated subquery, an argument of
a call) becomes a column of the base, copied there unchanged. So only DuckDB resolves names, by its
own rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from relquery.errors import QueryError, UnsupportedQueryError
from relquery.sql import names as ours
from relquery.sql.binder.call import FIELD_NAME, Call, calls_in, has_call, readable
from relquery.sql.binder.functions import (
    FunctionCatalog,
    clauses_of,
    has_window,
    is_variable,
    path_in,
)
from relquery.sql.binder.normalize import is_order_name, unnamed
from relquery.sql.binder.sources import Context, Sources, from_only, outer_columns
from relquery.sql.binder.stand_ins import describe
from relquery.sql.optimizer.reads import Computed, Lookup, condition_of, parted
from relquery.sql.parser import build, tree
from relquery.sql.parser.tree import Column, Expression, Limit, Node, Order, Query, Select, Subquery
from relquery.sql.planner.checks import Check, checks_in
from relquery.sql.planner.guards import Condition, Conditions, guard_of
from relquery.sql.planner.limits import cut_of, in_base_order, stops_early
from relquery.sql.planner.pairs import pair_of, together
from relquery.sql.planner.plan import (
    CallGroup,
    Cut,
    Field,
    Filter,
    PlannedCall,
    SelectPlan,
    declared_keys,
    name_fields,
    needs_in,
    sides_of,
)

# Notes on expressions that a base column would have to compute: the condition under which they are
# read, and whether they belong to a group rather than to its rows.
_GUARD = "guard"
_OF_GROUP = "of_group"


def plan_select(
    select: Select,
    sources: Sources,
    columns: tuple[tuple[str, str], ...],
    context: Context,
    lookup: Lookup,
) -> SelectPlan:
    """Plan a normalized SELECT.

    columns: (name, type) of its result. context: the WITH entries that it sees. Raises QueryError
    for a malformed call, UnsupportedQueryError for an unsupported form.
    """
    functions, names = lookup.functions, [name for name, _ in columns]
    qualified = _take_qualify(select, functions)
    _name_calls(select)
    _note_wholes(select, functions)
    over = _OverRows(select, sources, frozenset(map(str.lower, names)), context, lookup)
    plain, asking = parted(build.conjuncts(select.where))
    filters = tuple(
        Filter(read := over.rewrite(condition), over.part([condition], condition, read))
        for condition in asking
    )
    given = cut_of(select, names, functions)
    stops = given is not None and stops_early(given)
    by_group = given is not None and given.distinct is not None
    limits = given if stops and not by_group and not filters else None
    stops &= bool(filters) or not by_group
    cut = None if limits is not None else _cut(select, given, over, stops=stops)
    rest = select.copy()
    rest.source, rest.where, rest.sample = build.table(ours.ROWS), None, None
    if limits is not None:
        build.set_modifier(rest, Order, None)
        build.set_modifier(rest, Limit, None)
    elif cut is not None:
        rest.qualify = None
        rest.set("modifiers", None if select.order is None else [select.order.copy()])
    final = over.rewrite_select(rest)
    final.items = [item.named(name) for item, name in zip(final.items, names, strict=True)]
    if cut is not None and final.order is not None:
        build.set_modifier(final, Order, in_base_order(final.order))
    outputs = over.part(list(clauses_of(rest)), rest, final)
    base = from_only(select, over.base.items() or [build.null().named(ours.NOTHING)])
    base.where = condition_of(part.copy() for part in plain)
    base.qualify = condition_of(part.copy() for part in qualified)
    if limits is not None:
        base.set("modifiers", [modifier.copy() for modifier in limits.modifiers])
    return SelectPlan(
        base=base,
        calls=tuple(over.planned),
        filters=filters,
        cut=cut,
        outputs=outputs,
        aggregated=functions.in_select(select),
        final=final,
        context=context,
        columns=columns,
    )


def _take_qualify(select: Select, functions: FunctionCatalog) -> list[Expression]:
    """Take QUALIFY apart, in place: conditions without calls, which then go first, are returned,
    and those with calls become conditions of WHERE.

    That needs window functions that see no answers, and nothing else that sees dropped rows.
    """
    plain, asking = parted(build.conjuncts(select.qualify))
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


def _note_wholes(select: Select, functions: FunctionCatalog) -> None:
    """Note when expressions that cannot be split are read: copies keep notes but lose parents."""
    grouped, keys = functions.in_select(select), {key.key for key in select.keys}
    for node in select.walk(prune=lambda part: isinstance(part, Query) and part is not select):
        if _is_whole(node):
            path = path_in(select, node)
            node.meta[_GUARD] = guard_of(node, select, functions)
            node.meta[_OF_GROUP] = grouped and not (
                functions.around(node, select)
                or path[-1].place in ("group_expressions", "where_clause", "from_table")
                or any(node_above.key in keys for node_above in path)
            )


def _is_whole(node: Node) -> bool:
    """Whether an expression is a subquery, a schema's function, or a method or a column by its
    place, which DuckDB resolves."""
    if isinstance(node, tree.FunctionCall):
        return bool(node.schema) and not has_call(node)
    return isinstance(node, Subquery | tree.Position)


def _cut(select: Select, given: Select | None, over: _OverRows, stops: bool) -> Cut | None:
    """What decides which rows a SELECT returns, if this saves calls."""
    if given is None:
        return None
    known = {call.key for call in calls_in(given)}
    if not stops and all(call.key in known for item in select.items for call in calls_in(item)):
        return None
    cut = over.rewrite_select(given)
    cut.items, cut.source = [build.column(ours.ROW)], build.table(ours.ROWS)
    order = Order(orders=together(over.planned)) if cut.order is None else cut.order
    build.set_modifier(cut, Order, in_base_order(order))
    return Cut(cut, over.part([given], given, cut), stops)


@dataclass(slots=True)
class _OverRows:
    """A rewriter of one SELECT's expressions, which then read materialised rows and answers.

    names: lower-case names of the result's columns, which ORDER BY may use. base: the columns of
    the base. planned: the distinct calls. Both are collected while expressions are rewritten.
    """

    select: Select
    sources: Sources
    names: frozenset[str]
    context: Context
    lookup: Lookup
    base: Computed = field(default_factory=lambda: Computed(ours.column))
    planned: list[PlannedCall] = field(default_factory=list)
    _checks: list[Check] = field(default_factory=list)
    _identities: dict[object, int] = field(default_factory=dict)
    _by_key: dict[str, int] = field(default_factory=dict)
    _used: dict[int, None] = field(default_factory=dict)

    def rewrite(self, node: Node) -> Any:
        """A copy of an expression that reads the materialised rows."""
        return node.rebuilt(self._part)

    def rewrite_select(self, select: Select) -> Select:
        """A copy of a SELECT whose clauses do."""
        made = select.copy()
        for clause in ("select_list", "group_expressions", "having", "qualify", "modifiers"):
            value = select.args.get(clause)
            if isinstance(value, list):
                made.set(clause, [self.rewrite(item) for item in value])
            elif value is not None:
                made.set(clause, self.rewrite(value))
        return made

    def part(self, written: Sequence[Node], top: Node, read: Node) -> CallGroup:
        """The calls found since the last part. written: the nodes below `top` that have them;
        read: the same, over materialised rows.
        """
        used, self._used = tuple(self._used), {}
        places: dict[int, list[tuple[Condition, ...]]] = {}
        conditions = Conditions(top, self.lookup.functions, where_it_counts=True)
        rewritten = cache(self.rewrite)
        for call in (written_node for node in written for written_node in calls_in(node)):
            index = self._by_key.get(call.key)
            if index in used and index is not None:
                around = conditions.of(call)
                over = (
                    replace(condition, holds=rewritten(condition.holds)) for condition in around
                )
                places.setdefault(index, []).append(tuple(over))
        self._checks += (check for _, check in checks_in(read, self.lookup.functions))
        distinct = {
            (check.failed.key, check.value.key, check.note.kind, check.note.later): check
            for check in reversed(self._checks)
        }
        self._checks, self._used = [], {}
        return CallGroup(used, places, tuple(reversed(distinct.values())))

    def _part(self, node: Node) -> Expression | None:
        if isinstance(node, Call):
            return self._answer(node).named(node.alias)
        if isinstance(node, Subquery):
            return self._subquery(node)
        is_name = isinstance(node, Column) and not is_variable(node)
        is_lifted = is_name and not is_order_name(node, self.names)
        is_lifted |= _is_whole(node)
        return self._lift(node) if is_lifted and isinstance(node, Expression) else None

    def _lift(self, node: Expression) -> Column:
        """The base column for a whole expression without calls, computed only where it is read."""
        whole = unnamed(node)
        key = whole.key
        if isinstance(node, Column):
            key = "\0".join(self.sources.resolve(node) or (key,)).lower()
        elif (guard := node.meta.get(_GUARD)) is not None:
            whole = build.when(guard.copy(), whole)
            key = whole.key
        column = self.base.column(whole, key).named(node.alias)
        column.meta.update(node.meta)
        return column

    def _subquery(self, node: Subquery) -> Expression:
        """A subquery. What ANY compares is rewritten by itself."""
        copy = node.copy()
        if not self._stands_alone(node.query):
            is_split = bool(node.meta.get(_OF_GROUP)) or has_call(node.compared)
            database = self.lookup.database
            outer = outer_columns(copy.query, database, self.context) if is_split else None
            if outer is None and has_call(node.compared):
                assert node.compared is not None
                raise UnsupportedQueryError(
                    f"{readable(node.compared)[:80]} is compared with a subquery that depends on "
                    "the row. Join the subquery's table instead."
                )
            if outer is None:
                return self._lift(node)
            for column in outer:
                column.replace(self._lift(column))
        if node.compared is not None:
            copy.compared = self.rewrite(node.compared)
        return copy

    def _stands_alone(self, query: Query) -> bool:
        """Whether a subquery is independent of the outer query's rows. DuckDB decides."""
        try:
            return bool(describe(self.context.around(query), self.lookup.database))
        except QueryError:
            return False

    def _answer(self, node: Call) -> Expression:
        """Plan a call and return the column of its answers."""
        sources, lookup, task = self.sources, self.lookup, node.task
        written = [
            (index, value)
            for index, field in enumerate(node.fields)
            for value in (sources.expanded(field) if isinstance(field, tree.Star) else [field])
        ]
        given = [
            Field.of(value, self._field(value), sources, index in node.modules, index in node.bags)
            for index, value in written
        ]
        fields = name_fields(given, keep=task.has_places)
        if task.pairs:
            fields = pair_of(fields, node.written, task.is_symmetric)
        if task.kind == "match":
            sides = sides_of([value for _, value in written], sources, node.written)
            task = replace(task, sides=sides)
        asked = tuple(
            (field.name, field.value.key, field.is_module, field.is_bag) for field in fields
        )
        index = self._identities.setdefault((task, asked), len(self.planned))
        if index == len(self.planned):
            needs = needs_in([field.value for field in given], lookup.functions)
            entries = [entry.name for entry in self.context.entries]
            keys = declared_keys(self.select, fields, entries, lookup.database)
            self.planned.append(PlannedCall(index, node.written, task, fields, needs, keys))
        self._used[index] = None
        self._by_key[node.key] = index
        column = build.column(ours.answer(index))
        column.meta.update(node.meta)
        column.meta.pop("task", None)
        return column

    def _field(self, argument: Expression) -> Expression:
        """The value of a field. Its subqueries run once, with the base."""

        def part(one: Node) -> Expression | None:
            is_plain = isinstance(one, Subquery) and not has_call(one)
            return self._lift(one) if is_plain and isinstance(one, Subquery) else self._part(one)

        # Lift its columns, not the whole expression: the rest is computed only for rows asked.
        value = unnamed(argument).rebuilt(part)
        assert isinstance(value, Expression)
        self._checks += (check for _, check in checks_in(value, self.lookup.functions))
        return value
