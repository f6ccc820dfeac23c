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

from collections.abc import Iterator
from dataclasses import dataclass, field

from sqlglot import exp

from relquery.sql import names as ours
from relquery.sql.form.normalize import conjuncts
from relquery.sql.functions.naming import field_name
from relquery.sql.read.from_clause import from_only
from relquery.sql.read.methods import restore_columns
from relquery.sql.read.numbers import needs_number
from relquery.sql.read.scopes import calls_directly, calls_in, check_not_recursive, has_call
from relquery.sql.read.source import FIELD_NAME, call_number, to_sql
from relquery.sql.rewrite.lookup import Lookup
from relquery.sql.rewrite.pairs.entries import name_tables
from relquery.sql.rewrite.pairs.owners import WHERE, Owners, is_inner, outer_name
from relquery.sql.rewrite.pairs.repeatable import check_repeatable, refused

_CLAUSES = ("expressions", "distinct", "group", "having", "order")


def answer_correlated(tree: exp.Expr, lookup: Lookup) -> exp.Expr | None:
    """The rule of this module; see `rules`. Raises UnsupportedQueryError."""
    for select in list(tree.find_all(exp.Select)):
        if select.find_ancestor(exp.Select) is None or not calls_directly(select):
            continue
        for call in calls_in(select):
            check_not_recursive(call)
        if not lookup.stands_alone(select):
            outer = _outer(select)
            _ask_nothing_unread(select, lookup)
            if has_call(select):
                _answer(select, outer, lookup)
            return tree
    return None


def _outer(select: exp.Select) -> exp.Select:
    """The SELECT whose rows a subquery depends on. Raises unless it is part of an expression."""
    node: exp.Expr = select
    while node.parent is not None and not isinstance(node.parent, exp.Select):
        node = node.parent
    if not isinstance(node.parent, exp.Select):
        raise refused(WHERE, "the outer query is not a SELECT")
    if node.arg_key in ("from_", "joins", "laterals"):
        raise refused(WHERE, "the subquery is in the FROM clause")
    return node.parent


def _ask_nothing_unread(select: exp.Select, lookup: Lookup) -> None:
    """`EXISTS (SELECT LLM(...) FROM b)` => `EXISTS (SELECT 1 FROM b)`."""
    if isinstance(select.parent, exp.Exists) and not lookup.aggregates.in_select(select):
        keeps = any(select.args.get(key) for key in ("qualify", "order", "distinct"))
        makes_rows = any(item.find(exp.Explode, exp.UDTF) for item in select.expressions)
        if not keeps and not makes_rows:
            select.set("expressions", [exp.Literal.number(1)])


def _answer(select: exp.Select, outer: exp.Select, lookup: Lookup) -> None:
    name_tables(outer)
    inside, outside = lookup.sources(select), lookup.sources(outer)
    if inside is None or outside is None:
        raise refused(WHERE, "its tables, or those of the outer query, depend on a row, too")
    _check_form(select, lookup)
    check_repeatable(outer, WHERE, lookup)
    restore_columns(select, inside)
    Owners(inside, outside, lookup).note(select)
    conditions = _plain_conditions(outer, lookup)
    split = _Split()
    split.take(select, lookup)
    pairs = split.pairs(select, _outer_rows(outer, conditions, split.read, lookup))
    select.set("from_", exp.From(this=pairs.subquery(ours.PAIRS)))
    select.set("joins", None)
    select.set("where", split.match())


def _check_form(select: exp.Select, lookup: Lookup) -> None:
    """Raises UnsupportedQueryError for what cannot be split."""
    if any(select.args.get(key) for key in ("with_", "qualify", "windows", "sample", "laterals")):
        raise refused(WHERE, "the subquery has WITH, QUALIFY, WINDOW or a sample")
    kinds = (exp.Window, exp.Lambda, exp.Comprehension, exp.Explode, exp.UDTF)
    where = select.args.get("where")
    if any(part.find(*kinds) for part in [*_nodes(select), where] if part is not None):
        raise refused(WHERE, "the subquery has a window function, a lambda or unnest")
    if lookup.aggregates.is_volatile(select):
        raise refused(WHERE, "the subquery calls a function whose value differs every time")
    is_of_groups = lookup.aggregates.in_select(select)
    for call in calls_in(select):
        in_where = call.find_ancestor(exp.Where, exp.Select) is where
        if not in_where and is_of_groups and not lookup.aggregates.around(call, select):
            raise refused(WHERE, "the call is about a group of its rows")
    inner = [node for node in select.find_all(exp.Query) if node is not select]
    if any(map(has_call, inner)):
        raise refused(WHERE, "another subquery with a call is inside it")


def _plain_conditions(outer: exp.Select, lookup: Lookup) -> list[exp.Expr]:
    where = outer.args.get("where")
    return [
        part.copy()
        for part in conjuncts(where.this if where else None)
        if not has_call(part) and not lookup.aggregates.is_volatile(part)
    ]


def _outer_rows(
    outer: exp.Select,
    conditions: list[exp.Expr],
    read: dict[tuple[str, str], int],
    lookup: Lookup,
) -> exp.Select | None:
    """The distinct values of the outer columns, a struct for each table; None if none is read."""
    rows = from_only(outer)
    rows.set("distinct", exp.Distinct())
    tables = dict.fromkeys(table for table, _ in read)
    for table in tables:
        fields = [
            exp.PropertyEQ(
                this=exp.to_identifier(name, quoted=True),
                expression=exp.column(name, table=table, quoted=True),
            )
            for of, name in read
            if of == table
        ]
        pack = exp.Anonymous(this="struct_pack", expressions=fields)
        rows.select(exp.alias_(pack, table, quoted=True), copy=False)
    if not tables:
        return None
    for part in conditions:
        more = rows.where(part)
        if lookup.columns(more, outer) is not None:  # it reads no name of the select list
            rows = more
    return rows


@dataclass(slots=True)
class _Split:
    """Splits a correlated subquery into its rows, for all outer rows, and the rest.

    read: the outer columns that the rows depend on, (table, name), with their numbers. values: the
    columns of the rows that the rest reads, by SQL. where: the conditions of the rows.
    """

    read: dict[tuple[str, str], int] = field(default_factory=dict)
    values: dict[str, exp.Expr] = field(default_factory=dict)
    where: list[exp.Expr] = field(default_factory=list)

    def take(self, select: exp.Select, lookup: Lookup) -> None:
        """Take the parts with calls and the columns of the tables out of a subquery, in place."""
        where = select.args.get("where")
        self.where = [self._moved(part) for part in conjuncts(where.this if where else None)]
        select.set("where", None)
        for node in _nodes(select):
            for call in list(calls_in(node)):
                if call.find_ancestor(exp.Select) is select:  # not in a part taken before
                    self._take_value(_row_level(call, lookup))
        for node in _nodes(select):
            for column in list(node.find_all(exp.Column)):
                if is_inner(column):
                    column.replace(self._value(column.copy()))

    def pairs(self, select: exp.Select, outer_rows: exp.Select | None) -> exp.Select:
        """The rows of the subquery for every outer row."""
        own, joins = select.args.get("from_"), list(select.args.get("joins") or ())
        tables = [] if outer_rows is None else [outer_rows.subquery(ours.OUTER)]
        tables += [own.this] if own is not None else []
        pairs = exp.Select()
        if tables:
            pairs.set("from_", exp.From(this=tables[0].copy()))
            more = [exp.Join(this=table.copy()) for table in tables[1:]]
            pairs.set("joins", [*more, *(join.copy() for join in joins)])
        items = [exp.alias_(_outer_column(*key), ours.outer(at)) for key, at in self.read.items()]
        values = enumerate(self.values.values())
        items += [exp.alias_(value, ours.inner(at)) for at, value in values]
        pairs.select(*(items or [exp.alias_(exp.null(), ours.NOTHING)]), copy=False)
        return pairs.where(*self.where, copy=False) if self.where else pairs

    def match(self) -> exp.Where | None:
        """The condition that a row belongs to the outer row; None if all rows do."""
        same = [
            exp.NullSafeEQ(
                this=exp.column(ours.outer(at), table=ours.PAIRS),
                expression=exp.column(name, table=table, quoted=True),
            )
            for (table, name), at in self.read.items()
        ]
        return exp.Where(this=exp.and_(*same)) if same else None

    def _take_value(self, node: exp.Expr) -> None:
        numeric = [needs_number(call) for call in calls_in(node)]
        moved = self._moved(node)
        if any(numeric) and call_number(node.unnest()) is not None:
            moved = exp.cast(moved, "double")
        elif numeric != [needs_number(call) for call in calls_in(moved)]:
            raise refused(WHERE, "its answer is needed as a number. Cast it: LLM(...)::DOUBLE")
        node.replace(self._value(moved))

    def _value(self, node: exp.Expr) -> exp.Column:
        """The column of the rows for an expression over them."""
        key = to_sql(node)
        self.values.setdefault(key, node)
        return exp.column(ours.inner(list(self.values).index(key)), table=ours.PAIRS)

    def _moved(self, node: exp.Expr) -> exp.Expr:
        """A copy of an expression that reads the outer columns from the outer rows."""
        for call in calls_in(node):
            for argument in call.expressions[1:]:
                argument.meta.setdefault(FIELD_NAME, field_name(argument))

        def move(part: exp.Expr) -> exp.Expr:
            found = outer_name(part) if isinstance(part, exp.Column) else None
            if found is None:
                return part
            self.read.setdefault(found, len(self.read))
            moved = _outer_column(*found, *_fields_of(part, found))
            moved.meta.update({key: part.meta[key] for key in (FIELD_NAME,) if key in part.meta})
            return moved

        return node.transform(move)


def _nodes(select: exp.Select) -> Iterator[exp.Expr]:
    """The parts of a subquery beside its rows."""
    for clause in _CLAUSES:
        nodes = select.args.get(clause) or []
        yield from list(nodes) if isinstance(nodes, list) else [nodes]


def _row_level(call: exp.Expr, lookup: Lookup) -> exp.Expr:
    """The largest expression around a call that is computed for each row."""
    node = call
    while isinstance(node.parent, exp.Condition | exp.If) and not isinstance(
        node.parent, exp.Query | exp.Filter | exp.WithinGroup | exp.Distinct
    ):
        over = node.parent
        if lookup.aggregates.is_aggregate(over) or lookup.aggregates.has_query(over):
            break
        if next(lookup.aggregates.inside(over), None) is not None:
            break
        node = over
    return node.parent if isinstance(node, exp.If) and node.parent is not None else node


def _outer_column(table: str, *names: str) -> exp.Column:
    """A column of the outer rows, or a field of one."""
    parts = [exp.to_identifier(name, quoted=True) for name in (table, *names)]
    keys = ("this", "table", "db", "catalog")
    chain = [*reversed(parts), exp.to_identifier(ours.OUTER)]
    return exp.Column(**dict(zip(keys, chain, strict=False)))


def _fields_of(column: exp.Expr, found: tuple[str, str]) -> list[str]:
    """`year` of `a.info.year` and of `info.year`."""
    parts = [column.text(key) for key in ("db", "table", "this") if column.args.get(key)]
    start = 2 if len(parts) > 1 and parts[0].lower() == found[0].lower() else 1
    return parts[start:]
