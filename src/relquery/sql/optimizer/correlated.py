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
from relquery.sql.binder.call import Call, calls_directly, calls_in, has_call, named_like
from relquery.sql.binder.functions import clauses_of, has_window, makes_rows
from relquery.sql.binder.normalize import (
    name_of,
    normalize,
    replace_aliases,
    restore_columns,
    unnamed,
)
from relquery.sql.binder.sources import (
    Context,
    Sources,
    check_not_recursive,
    entry_of,
    from_only,
    is_recursive,
    leaves,
)
from relquery.sql.binder.stand_ins import needs_number
from relquery.sql.optimizer.first_rows import FirstRows, keeps_outer, sees_several
from relquery.sql.optimizer.groups import (
    asks_about_groups,
    asks_about_windows,
    over_groups,
    over_windows,
)
from relquery.sql.optimizer.join_conditions import (
    about,
    add_entry,
    check_repeatable,
    columns_of,
    filter_first,
    match,
    move_entry,
    name_tables,
    refused,
)
from relquery.sql.optimizer.owners import OWNER, WHERE, Owners
from relquery.sql.optimizer.reads import (
    Computed,
    Lookup,
    condition_of,
    note_field_names,
    parted,
)
from relquery.sql.parser import build, tree
from relquery.sql.parser.tree import (
    Column,
    Empty,
    Expression,
    Node,
    Query,
    Select,
    Source,
    Subquery,
)


def answer_correlated(statement: Query, lookup: Lookup) -> bool:
    """The rule of this module; see `rules`. Raises UnsupportedQueryError."""
    for select in statement.find_all(Select):
        if select.ancestor(Select) is None or not calls_directly(select):
            continue
        for call in calls_in(select):
            check_not_recursive(call)
        if not lookup.stands_alone(select):
            inside = lookup.sources(select)
            if inside is None and _has_open_tables(select, lookup):
                continue  # theirs first
            outer = _outer(select)
            if _move_entries(select, outer.select, lookup) or _filter(outer, lookup):
                return True
            name_tables(outer.select.source, outer.select, lookup)
            opened = list[Column]()
            if inside is None:
                inside, opened = _open_sources(select, outer, lookup)
            if inside is None:
                raise refused(WHERE, "its tables depend on a row, too")
            replace_aliases(select, inside, lookup.functions)
            if _is_over_groups(select, inside, lookup):
                return True
            subquery = select.parent and select.parent.parent
            if isinstance(subquery, Subquery):
                _ask_less(subquery, select, outer.select, lookup)
            if has_call(select):
                _answer(select, inside, opened, outer, lookup)
            return True
    return False


def _is_over_groups(select: Select, inside: Sources, lookup: Lookup) -> bool:
    """Replace a SELECT whose calls are about groups or windows by one over them; see `groups`."""
    is_of_groups = asks_about_groups(select, inside, lookup.functions)
    if not is_of_groups and not asks_about_windows(select):
        return False
    normal = normalize(select, inside, lookup.functions)
    names = [name_of(item) for item in normal.items]
    if is_of_groups:
        over = over_groups(normal, names, inside, lookup.functions)
    else:
        over = over_windows(normal, names, inside)
    over.entries = [entry.copy() for entry in select.entries]
    select.replace(over)
    return True


def _has_open_tables(select: Select, lookup: Lookup) -> bool:
    """Whether a table of a SELECT has calls that depend on a row of an outer query."""
    tables = [select.source, *select.entries]
    inner = [one for table in tables if table is not None for one in table.find_all(Select)]
    return any(calls_directly(one) and not lookup.stands_alone(one) for one in inner)


@dataclass(frozen=True, slots=True)
class _Outer:
    """The SELECT whose rows a subquery depends on. left: which of its tables a LATERAL one sees,
    those on its left; None for a subquery of an expression, which sees all."""

    select: Select
    left: list[Source] | None

    @property
    def seen(self) -> Select:
        """The rows that the subquery depends on."""
        if self.left is None:
            return self.select
        seen = build.select([], build.joined([one.copy() for one in self.left]))
        seen.where = self.select.where and self.select.where.copy()
        return seen


def _outer(select: Select) -> _Outer:
    """The query whose rows a subquery depends on."""
    node: Node = select
    left: list[Source] = []
    is_condition = False
    while node.parent is not None and not isinstance(node.parent, Select):
        if isinstance(node.parent, tree.Join) and node is node.parent.right:
            left.insert(0, node.parent.left)
        is_condition |= isinstance(node.parent, tree.Join) and isinstance(node, Expression)
        node = node.parent
    if not isinstance(node.parent, Select):
        raise refused(WHERE, "the outer query is not a SELECT")
    if node.place == "from_table" and is_condition:
        raise refused(WHERE, "the subquery is in the FROM clause")
    if node.place == "cte_map" or (node.place == "from_table" and not left):
        return _outer(node.parent)  # what it depends on is further out
    return _Outer(node.parent, left if node.place == "from_table" else None)


def _move_entries(select: Select, outer: Select, lookup: Lookup) -> bool:
    """Turn WITH entries of a subquery that do not depend on a row into entries of the outer query,
    with names of ours, in place. Returns whether there are any."""
    moved = False
    within = [one for one in (select, *select.ancestors()) if isinstance(one, Query)]
    for query in reversed(within[: within.index(outer)]):
        for entry in query.entries:
            reads_itself, whole = is_recursive(entry), build.select([build.star()], entry.name)
            alone = lookup.columns(whole, query) if reads_itself else lookup.columns(entry.query)
            if alone is None:
                continue
            tables = [one for one in query.find_all(tree.Table) if entry_of(one) is entry]
            query.entries = [one for one in query.entries if one is not entry]
            whole.entries = [entry]  # where it keeps its name
            name = add_entry(whole, outer) if reads_itself else move_entry(entry, outer)
            for table in tables:
                table.alias, table.table = table.name, name
            moved = True
    return moved


def _filter(outer: _Outer, lookup: Lookup) -> bool:
    """Ask the conditions about the outer query's only table before its subqueries, in place.

    SELECT (SELECT max(LLM(a.t, b.t)) FROM b) FROM a WHERE LLM(a.t) = 'Yes'
    => SELECT (SELECT ...) FROM (SELECT * FROM a WHERE LLM(a.t) = 'Yes') AS a
    """
    select, is_lateral = outer.select, outer.left is not None
    side = outer.left[0] if outer.left is not None else select.source
    if side is None or len(list(leaves(select.source))) > 1 + is_lateral:
        return False
    return filter_first(side, dict(about(side, select, lookup)), select)


def _ask_less(subquery: Subquery, select: Select, outer: Select, lookup: Lookup) -> None:
    """Rewrite a subquery, in place, so that fewer rows are asked about.

    a.k IN (SELECT b.k FROM b WHERE LLM(a.t, b.t) = 'Yes'), as a condition of WHERE
    => EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND LLM(a.t, b.t) = 'Yes')

    EXISTS (SELECT LLM(...) FROM b) => EXISTS (SELECT 1 FROM b)
    """
    if lookup.functions.in_select(select):
        return
    if subquery.kind == "EXISTS":
        keeps = (select.qualify, select.order, select.distinct, *filter(makes_rows, select.items))
        if not any(keeps):
            select.items = [build.number(1)]
        return
    is_condition = any(one is subquery for one in build.conjuncts(outer.where))
    is_equal = subquery.kind == "ANY" and subquery.args.get("comparison_type") == build.EQUAL
    sources = lookup.sources(outer)
    if not (is_condition and is_equal) or select.modifiers or len(select.items) != 1:
        return
    if select.qualify is not None or sees_several(select):
        return
    if sources is None or subquery.compared is None:
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


def _answer(
    select: Select, inside: Sources, opened: list[Column], depends_on: _Outer, lookup: Lookup
) -> None:
    """Rewrite a subquery, in place. inside: its tables. opened: columns of the outer query that one
    of them reads."""
    outer, seen = depends_on.select, depends_on.seen
    outside = lookup.sources(seen, outer)
    if outside is None:
        raise refused(WHERE, "the tables of the outer query depend on a row, too")
    restore_columns(select, inside)
    restore_columns(select, outside)
    _check_form(select, lookup)
    check_repeatable(from_only(seen), outer, WHERE, lookup)
    Owners(inside, outside, lookup).note(select, opened)
    plain, _ = parted(build.conjuncts(seen.where))
    conditions = [part for part in plain if not lookup.functions.is_volatile(part)]
    split, first = _Split(lookup), FirstRows.of(outer, lookup)
    of_each, of_pairs = FirstRows.of(select, lookup), first and first.read_in(select, outer, lookup)
    of_each, of_pairs = (one and one.over(split.moved) for one in (of_each, of_pairs))
    is_kept = keeps_outer(select, outer, lookup)
    split.take(select)
    rows = _outer_rows(seen, outer, conditions, list(split.read), lookup)
    is_whole = rows is not None and _count(rows) == _count(seen)
    if rows is not None and first is not None and is_whole and is_kept:
        limited = first.with_ties(rows)
        rows = rows if lookup.columns(limited, outer) is None else limited
    pairs = split.pairs(rows)
    if of_pairs is not None and is_whole:
        pairs = of_pairs.with_ties(pairs)
    if of_each is not None and split.read:
        of_each.leave(pairs, map(ours.outer, split.read.values()))
    subquery = select.parent and select.parent.parent
    is_exists = isinstance(subquery, Subquery) and subquery.kind == "EXISTS"
    is_of_rows = not (select.modifiers or select.qualify or lookup.functions.in_select(select))
    if is_exists and is_of_rows:
        build.first_of(pairs, map(ours.outer, split.read.values()))  # one row is enough
    if depends_on.left is None:
        select.source = build.derived(pairs, ours.PAIRS)
    else:  # tables on its right may read it, too
        select.source = build.table(add_entry(pairs, outer), ours.PAIRS)
    own = (build.column(name, table) for table, name in split.read)
    select.where = match(own, ours.PAIRS)


def _open_sources(
    select: Select, outer: _Outer, lookup: Lookup
) -> tuple[Sources | None, list[Column]]:
    """The tables of a FROM clause that depends on the outer query's rows, and the columns of the
    outer query in it."""
    source, around = select.source, outer.seen.source
    if isinstance(around, Empty) or any(one.sample for one in leaves(source)):
        return None, []
    inside = lookup.sources(select, outer.select, around)
    if inside is None or source is None:
        return None, []
    read = columns_of(source, Context.of(select), WHERE, lookup)
    return inside, [one for one in read if not inside.left_of(one).gives(one)]


def _count(select: Select) -> int:
    return len(build.conjuncts(select.where))


def _check_form(select: Select, lookup: Lookup) -> None:
    functions = lookup.functions
    if select.entries or select.sample is not None:
        raise refused(WHERE, "the subquery has a sample, or WITH that depends on a row")
    if functions.is_volatile(select):
        raise refused(WHERE, "the subquery calls a function whose value differs every time")
    rest = [call for node in _rest(select) for call in calls_in(node)]
    if functions.in_select(select) and not all(functions.around(one, select) for one in rest):
        raise refused(WHERE, "the call is about a group of its rows")
    if any(has_call(one) for clause in clauses_of(select) for one in clause.find_all(Query)):
        raise refused(WHERE, "another subquery with a call is inside it")


def _rest(select: Select) -> list[Node]:
    return [one for one in clauses_of(select) if one.place != "where_clause"]


def _outer_rows(
    seen: Select,
    outer: Select,
    conditions: list[Expression],
    read: list[tuple[str, str]],
    lookup: Lookup,
) -> Select | None:
    """The distinct values of the outer columns, a struct for each table; None if none is read.

    seen: the tables that have them.
    """
    if not read:
        return None
    items = []
    for table in dict.fromkeys(table for table, _ in read):
        fields = {name: build.column(name, table) for of, name in read if of == table}
        items.append(build.function("struct_pack", **fields).named(table))
    rows = from_only(seen, items)
    build.set_modifier(rows, tree.Distinct, tree.Distinct())
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
    values: Computed = field(default_factory=lambda: Computed(ours.inner))
    where: list[Expression] = field(default_factory=list)
    source: Node = field(default_factory=Empty)

    def take(self, select: Select) -> None:
        """Take the parts with calls and the columns of the tables out of a subquery, in place."""
        for item in select.items:  # what reads them knows the names that they have now
            if isinstance(item, Column) and not item.alias:
                item.named(item.name)
        self.where = [self.moved(part) for part in build.conjuncts(select.where)]
        select.where = None
        if select.source is not None:
            self.source = select.source.rebuilt(self._moved_column)
        for call in [call for node in _rest(select) for call in calls_in(node)]:
            if call.ancestor(Select) is select:  # not in a part taken before
                self._take_value(self._row_level(call))
        for column in [one for node in _rest(select) for one in node.find_all(Column)]:
            if column.meta.get(OWNER) == ():
                column.replace(self._value(column))

    def pairs(self, outer_rows: Select | None) -> Select:
        """The rows of the subquery for every outer row."""
        tables: list[tree.Source] = (
            [] if outer_rows is None else [build.derived(outer_rows, ours.OUTER)]
        )
        if isinstance(self.source, Source) and not isinstance(self.source, Empty):
            tables.append(self.source)
        items: list[Expression] = [
            build.column(name, ours.OUTER, table).named(ours.outer(at))
            for (table, name), at in self.read.items()
        ]
        items += self.values.items()
        source = build.joined(tables) if tables else None
        items = items or [build.null().named(ours.NOTHING)]
        return build.select(items, source, condition_of(self.where))

    def _take_value(self, node: Expression) -> None:
        numeric = [needs_number(call) for call in calls_in(node)]
        moved = self.moved(node)
        if any(numeric) and isinstance(node, Call):
            moved = build.cast(unnamed(moved), build.plain_type("DOUBLE"))
        elif numeric != [needs_number(call) for call in calls_in(moved)]:
            raise refused(WHERE, "its answer is needed as a number. Cast it: LLM(...)::DOUBLE")
        node.replace(self._value(moved).named(node.alias))

    def _value(self, node: Expression) -> Column:
        value = unnamed(node)
        column = self.values.column(value, value.key).named(node.alias)
        column.names = [ours.PAIRS, column.name]
        return column

    def moved(self, node: Expression) -> Expression:
        """A copy of an expression that reads the outer columns from the outer rows."""
        note_field_names(node)
        found = node.rebuilt(self._moved_column)
        assert isinstance(found, Expression)
        return found

    def _moved_column(self, part: Node) -> Expression | None:
        names = part.meta.get(OWNER)
        if not names or not isinstance(part, Column):
            return None
        self.read.setdefault(names[:2], len(self.read))
        moved = Column(column_names=[ours.OUTER, *names]).named(part.alias)
        named_like(moved, part)
        return moved

    def _row_level(self, call: Call) -> Expression:
        """The largest expression around a call that is computed for each row."""
        functions = self.lookup.functions
        found: Expression = call
        for over in call.ancestors():
            if isinstance(over, tree.Argument | tree.When):
                continue
            if not isinstance(over, Expression) or functions.is_aggregate(over):
                break
            if functions.has_query(over) or functions.has_aggregate(over):
                break
            if has_window(over) or makes_rows(over):
                break
            found = over
        return found
