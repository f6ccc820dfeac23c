"""Calls in a subquery that depends on a row of the outer query are answered beforehand.

SELECT a.id FROM a WHERE p AND EXISTS (
    SELECT 1 FROM b WHERE b.k = a.k AND LLM('...', a.t, b.t) = 'Yes')
=> ... EXISTS (SELECT 1 FROM (
       SELECT o.a.k AS x, o.a.t AS y
       FROM (SELECT DISTINCT struct_pack(k := a.k, t := a.t) AS a FROM a WHERE p) AS o, b
       WHERE b.k = o.a.k AND LLM('...', o.a.t, b.t) = 'Yes')
   WHERE x IS NOT DISTINCT FROM a.k AND y IS NOT DISTINCT FROM a.t)

The inner SELECT, which is no longer correlated, has the subquery's rows for every outer row. It is
a column for each value that the rest of the subquery reads: columns of its tables, and answers. So
the rest stays as it is, with its aggregates, ORDER BY and LIMIT, around fewer tables.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from relquery.sql import names as ours
from relquery.sql.binder.call import (
    FIELD_NAME,
    Call,
    calls_directly,
    calls_in,
    has_call,
    is_star,
    named_like,
)
from relquery.sql.binder.functions import clauses_of, has_lambda, has_window, makes_rows
from relquery.sql.binder.naming import field_name
from relquery.sql.binder.normalize import restore_columns, unnamed
from relquery.sql.binder.numbers import needs_number
from relquery.sql.binder.scopes import check_not_recursive
from relquery.sql.binder.sources import from_only
from relquery.sql.optimizer.joins import take_conditions
from relquery.sql.optimizer.lookup import Lookup
from relquery.sql.optimizer.owners import WHERE, Outer, Owners, is_inner, outer_of
from relquery.sql.optimizer.pairs import check_repeatable, name_tables, refused
from relquery.sql.parser import build
from relquery.sql.parser.tree import (
    Argument,
    Column,
    Distinct,
    Empty,
    Expression,
    Node,
    Query,
    Select,
    Subquery,
    When,
)


def answer_correlated(tree: Query, lookup: Lookup) -> Query | None:
    """The rule of this module; see `rules`. Raises UnsupportedQueryError."""
    for select in tree.find_all(Select):
        if select.ancestor(Select) is None or not calls_directly(select):
            continue
        for call in calls_in(select):
            check_not_recursive(call)
        if not lookup.stands_alone(select):
            outer = _outer(select)
            _as_exists(select, outer, lookup)
            _ask_nothing_unread(select, lookup)
            if has_call(select):
                _answer(select, outer, lookup)
            return tree
    return None


def _outer(select: Select) -> Select:
    """The SELECT whose rows a subquery depends on. Raises unless it is part of an expression."""
    node: Node = select
    while node.parent is not None and not isinstance(node.parent, Select):
        node = node.parent
    if not isinstance(node.parent, Select):
        raise refused(WHERE, "the outer query is not a SELECT")
    if node.place in ("from_table", "cte_map"):
        clause = "the FROM clause" if node.place == "from_table" else "WITH"
        raise refused(WHERE, f"the subquery is in {clause}")
    return node.parent


def _as_exists(select: Select, outer: Select, lookup: Lookup) -> None:
    """A condition of WHERE, in place: `a.k IN (SELECT b.k FROM b WHERE LLM(a.t, b.t) = 'Yes')` as
    `EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND LLM(a.t, b.t) = 'Yes')`."""
    subquery = select.parent and select.parent.parent
    if not isinstance(subquery, Subquery) or subquery.kind != "ANY" or subquery.compared is None:
        return
    is_plain = not select.modifiers and not lookup.functions.in_select(select)
    is_equal = subquery.args.get("comparison_type") == build.EQUAL
    is_condition = any(one is subquery for one in build.conjuncts(outer.where))
    sources = lookup.sources(outer)
    if not (is_plain and is_equal and is_condition) or len(select.items) != 1 or sources is None:
        return
    compared = subquery.compared.copy()
    for column in compared.find_all(Column):
        known = sources.resolve(column)
        if known is None:
            return
        column.names = list(known)
    build.add_where(select, build.compared(build.EQUAL, unnamed(select.items[0]), compared))
    select.items = [build.number(1)]
    subquery.kind, subquery.compared = "EXISTS", None
    subquery.set("comparison_type", "INVALID")


def _ask_nothing_unread(select: Select, lookup: Lookup) -> None:
    """`EXISTS (SELECT LLM(...) FROM b)` => `EXISTS (SELECT 1 FROM b)`."""
    subquery = select.parent and select.parent.parent
    if not isinstance(subquery, Subquery) or subquery.kind != "EXISTS":
        return
    keeps = (select.qualify, select.order, select.distinct, *filter(makes_rows, select.items))
    if not any(keeps) and not lookup.functions.in_select(select):
        select.items = [build.number(1)]


def _answer(select: Select, outer: Select, lookup: Lookup) -> None:
    name_tables(outer.source, outer, lookup)
    plain = take_conditions(select)
    select.source, select.where = plain.source, plain.where
    inside, outside = lookup.sources(select), lookup.sources(outer)
    if inside is None or outside is None:
        raise refused(WHERE, "its tables, or those of the outer query, depend on a row, too")
    restore_columns(select, inside)
    restore_columns(select, outside)
    _check_form(select, lookup)
    check_repeatable(from_only(outer), outer, WHERE, lookup)
    Owners(inside, outside, lookup).note(select)
    conditions = [
        part
        for part in build.conjuncts(outer.where)
        if not has_call(part) and not lookup.functions.is_volatile(part)
    ]
    split = _Split(lookup)
    split.take(select)
    pairs = split.pairs(select, _outer_rows(outer, conditions, list(split.read), lookup))
    if _asks_whether(select, lookup):
        build.first_of(pairs, map(ours.outer, split.read.values()))
    select.source = build.derived(pairs, ours.PAIRS)
    select.where = split.match()


def _asks_whether(select: Select, lookup: Lookup) -> bool:
    """Whether a subquery is only asked whether it has a row."""
    subquery = select.parent and select.parent.parent
    is_exists = isinstance(subquery, Subquery) and subquery.kind == "EXISTS"
    return is_exists and not select.modifiers and not lookup.functions.in_select(select)


def _check_form(select: Select, lookup: Lookup) -> None:
    """Raises UnsupportedQueryError for what cannot be split."""
    functions = lookup.functions
    if select.entries or select.qualify is not None or select.sample is not None:
        raise refused(WHERE, "the subquery has WITH, QUALIFY or a sample")
    if any(has_window(one) or has_lambda(one) or makes_rows(one) for one in clauses_of(select)):
        raise refused(WHERE, "the subquery has a window function, a lambda or unnest")
    if functions.is_volatile(select):
        raise refused(WHERE, "the subquery calls a function whose value differs every time")
    rest = [call for node in _rest(select) for call in calls_in(node)]
    if functions.in_select(select) and not all(functions.around(one, select) for one in rest):
        raise refused(WHERE, "the call is about a group of its rows")
    if any(has_call(one) for one in select.find_all(Query) if one is not select):
        raise refused(WHERE, "another subquery with a call is inside it")


def _rest(select: Select) -> list[Node]:
    """The parts of a subquery beside its rows."""
    return [one for one in clauses_of(select) if one.place != "where_clause"]


def _outer_rows(
    outer: Select, conditions: list[Expression], read: list[tuple[str, str]], lookup: Lookup
) -> Select | None:
    """The distinct values of the outer columns, a struct for each table; None if none is read."""
    if not read:
        return None
    items = []
    for table in dict.fromkeys(table for table, _ in read):
        fields = {name: build.column(name, table) for of, name in read if of == table}
        items.append(build.function("struct_pack", **fields).named(table))
    rows = from_only(outer, items)
    build.set_modifier(rows, Distinct, Distinct())
    for part in conditions:
        more = rows.copy()
        build.add_where(more, part.copy())
        if lookup.columns(more, outer) is not None:  # it reads no name of the select list
            rows = more
    return rows


@dataclass(slots=True)
class _Split:
    """Splits a correlated subquery into its rows, for all outer rows, and the rest.

    read: the outer columns that the rows depend on, (table, name), with their numbers. values: the
    columns of the rows that the rest reads. where: the conditions of the rows.
    """

    lookup: Lookup
    read: dict[tuple[str, str], int] = field(default_factory=dict)
    values: dict[str, Expression] = field(default_factory=dict)
    where: list[Expression] = field(default_factory=list)

    def take(self, select: Select) -> None:
        """Take the parts with calls and the columns of the tables out of a subquery, in place."""
        self.where = [self._moved(part) for part in build.conjuncts(select.where)]
        select.where = None
        for call in [call for node in _rest(select) for call in calls_in(node)]:
            if call.ancestor(Select) is select:  # not in a part taken before
                self._take_value(self._row_level(call))
        for column in [one for node in _rest(select) for one in node.find_all(Column)]:
            if is_inner(column):
                column.replace(self._value(column))

    def pairs(self, select: Select, outer_rows: Select | None) -> Select:
        """The rows of the subquery for every outer row."""
        tables = [] if outer_rows is None else [build.derived(outer_rows, ours.OUTER)]
        own = select.source
        own_tables = [] if own is None or isinstance(own, Empty) else [own.copy()]
        items: list[Expression] = [
            _outer_column(Outer(*key)).named(ours.outer(at)) for key, at in self.read.items()
        ]
        values = enumerate(self.values.values())
        items += [value.named(ours.inner(at)) for at, value in values]
        source = build.joined([*tables, *own_tables]) if tables or own_tables else None
        pairs = build.select(items or [build.null().named(ours.NOTHING)], source)
        if self.where:
            build.add_where(pairs, *self.where)
        return pairs

    def match(self) -> Expression | None:
        """The condition that a row belongs to the outer row; None if all rows do."""
        same = [
            build.compared(
                build.SAME, build.column(ours.outer(at), ours.PAIRS), build.column(name, table)
            )
            for (table, name), at in self.read.items()
        ]
        return build.all_of(same) if same else None

    def _take_value(self, node: Expression) -> None:
        numeric = [needs_number(call) for call in calls_in(node)]
        moved = self._moved(node)
        if any(numeric) and isinstance(node, Call):
            moved = build.cast(unnamed(moved), build.plain_type("DOUBLE"))
        elif numeric != [needs_number(call) for call in calls_in(moved)]:
            raise refused(WHERE, "its answer is needed as a number. Cast it: LLM(...)::DOUBLE")
        node.replace(self._value(moved).named(node.alias))

    def _value(self, node: Expression) -> Column:
        """The column of the rows for an expression over them."""
        value = unnamed(node)
        self.values.setdefault(value.key, value)
        at = list(self.values).index(value.key)
        return build.column(ours.inner(at), ours.PAIRS).named(node.alias)

    def _moved(self, node: Expression) -> Expression:
        """A copy of an expression that reads the outer columns from the outer rows."""
        for call in calls_in(node):
            for argument in call.fields:
                if not is_star(argument):
                    argument.meta.setdefault(FIELD_NAME, field_name(argument))

        def move(part: Node) -> Expression | None:
            found = outer_of(part)
            if found is None or not isinstance(part, Column):
                return None
            self.read.setdefault((found.table, found.name), len(self.read))
            moved = _outer_column(found).named(part.alias)
            named_like(moved, part)
            return moved

        found = node.rebuilt(move)
        assert isinstance(found, Expression)
        return found

    def _row_level(self, call: Call) -> Expression:
        """The largest expression around a call that is computed for each row."""
        functions = self.lookup.functions
        found: Expression = call
        for over in call.ancestors():
            if isinstance(over, Argument | When):
                continue
            if not isinstance(over, Expression) or functions.is_aggregate(over):
                break
            if functions.has_query(over) or functions.has_aggregate(over):
                break
            found = over
        return found


def _outer_column(outer: Outer) -> Column:
    """A column of the outer rows, or a field of one."""
    return Column(column_names=[ours.OUTER, outer.table, outer.name, *outer.fields])
