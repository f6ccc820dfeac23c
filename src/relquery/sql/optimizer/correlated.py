"""Calls in a subquery that depends on a row of the outer query are answered beforehand.

SELECT a.id, (SELECT max(LLM('...', a.t, b.t)) FROM b WHERE b.k = a.k) FROM a WHERE p
=> WITH pairs AS (SELECT DISTINCT l.x, l.y
                  FROM a, LATERAL (SELECT a.t AS x, b.t AS y FROM b WHERE b.k = a.k) AS l WHERE p),
        found AS (SELECT x, y, LLM('...', x, y) AS v FROM pairs)
   SELECT a.id, (SELECT max(found.v) FROM b, found
                 WHERE b.k = a.k AND x IS NOT DISTINCT FROM a.t AND y IS NOT DISTINCT FROM b.t)
   FROM a WHERE p

In the LATERAL subquery DuckDB resolves names as in the subquery itself. Each row of the subquery
meets exactly one of `found`, or none if a condition with calls drops it. So the rest of the
subquery stays as it is, with its aggregates, ORDER BY and LIMIT. EXISTS needs one row:

EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND LLM('...', a.t, b.t) = 'Yes')
=> found AS (SELECT DISTINCT ON (x, z) x, z FROM pairs WHERE LLM('...', x, y) = 'Yes')
   EXISTS (SELECT 1 FROM found WHERE x IS NOT DISTINCT FROM a.t AND z IS NOT DISTINCT FROM a.k)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from relquery.sql import names as ours
from relquery.sql.binder.call import (
    FIELD_NAME,
    Call,
    calls_directly,
    calls_in,
    has_call,
    named_like,
)
from relquery.sql.binder.functions import (
    clauses_of,
    has_window,
    makes_rows,
    outermost_queries,
)
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
    outer_columns,
)
from relquery.sql.binder.stand_ins import needs_number
from relquery.sql.optimizer.groups import (
    asks_about_groups,
    asks_about_windows,
    over_groups,
    over_windows,
)
from relquery.sql.optimizer.join_conditions import (
    add_entry,
    check_repeatable,
    columns_of,
    columns_of_star,
    is_whole_star,
    match,
    move_entry,
    name_tables,
    refused,
)
from relquery.sql.optimizer.push_limits import limits_of
from relquery.sql.optimizer.reads import (
    Computed,
    Lookup,
    condition_of,
    note_field_names,
    parted,
)
from relquery.sql.parser import build, tree
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import (
    Column,
    Expression,
    Node,
    Ordered,
    Query,
    Select,
    Source,
    Star,
    Subquery,
)

WHERE = "a subquery that depends on a row of the outer query"
_AT = "column of pairs"
"""Note on a column of a subquery: its place among the columns of the pairs."""


def answer_correlated(statement: Query, lookup: Lookup) -> bool:
    """The rule of this module; see `rules`. Raises UnsupportedQueryError."""
    for select in statement.find_all(Select):
        if select.ancestor(Select) is None or not calls_directly(select):
            continue
        for call in calls_in(select):
            check_not_recursive(call)
        if lookup.stands_alone(select):
            continue
        inside = lookup.sources(select)
        if inside is None and _has_open_tables(select, lookup):
            continue  # theirs first
        outer = _outer(select)
        if _move_entries(select, outer.select, lookup):
            return True
        seen = outer.seen
        inside = inside or lookup.sources(select, outer.select, seen.source)
        outside = lookup.sources(seen, outer.select)
        if inside is None or outside is None:
            raise refused(WHERE, "its tables depend on a row, too")
        replace_aliases(select, inside, lookup.functions)
        if not _is_over_groups(select, inside, lookup):
            _answer(select, inside, outside, outer, lookup)
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
        """The FROM clause that the subquery sees."""
        if self.left is None:
            return from_only(self.select)
        return build.select([], build.joined([one.copy() for one in self.left]))


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


def _answer(
    select: Select, inside: Sources, outside: Sources, outer: _Outer, lookup: Lookup
) -> None:
    """Rewrite a subquery, in place. inside, outside: its tables, and those of the outer query."""
    for source in (outer.select.source, select.source):
        name_tables(source, outer.select, lookup)
    for tables in (inside, outside):
        restore_columns(select, tables)
    _check_form(select, lookup)
    check_repeatable(outer.seen, outer.select, WHERE, lookup)
    _write_columns(select, inside, outside, lookup)
    subquery = select.parent and select.parent.parent
    is_folded = lookup.functions.in_select(select)
    more = (is_folded, select.qualify, *select.modifiers, *filter(makes_rows, select.items))
    if isinstance(subquery, Subquery) and subquery.kind == "EXISTS" and not any(more):
        select.items = [build.number(1)]
        if not has_call(select):
            return
    else:
        subquery = None
    split = _Split(select, lookup)
    split.take()
    if subquery is not None:
        read = outer_columns(select, lookup.database, Context.of(select))
        if read is None:
            raise refused(WHERE, "its columns are unclear")
        split.add(read)
        own = {one.copy().named("").key.lower() for one in read}
        split.matched = [at for at, one in enumerate(split.columns) if one in own]
    pairs = build.table(add_entry(_pairs(split, outer, lookup), outer.select))
    found = split.found(pairs.name, is_distinct=subquery is not None)
    table = build.table(add_entry(found, outer.select))
    matched = split.match(table.name)
    if subquery is not None:
        select.source, select.where = table, matched
        return
    has_tables = select.source is not None and not isinstance(select.source, tree.Empty)
    tables = [select.source.copy()] if select.source is not None and has_tables else []
    split.put(table.name)
    select.source = build.joined([*tables, table])
    select.where = condition_of([*split.plain, *([] if matched is None else [matched])])


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


def _write_columns(select: Select, inside: Sources, outside: Sources, lookup: Lookup) -> None:
    """Write columns for stars, which would have those of one more table, and name the fields of
    calls as they are named before."""
    items = lookup.items(select, inside)
    if items is None:
        raise refused(WHERE, "the subquery has a star. Name the columns")
    if any(isinstance(item, Star) for item in select.items):
        select.items = items
    for item in select.items:  # what reads them knows the names that they have now
        if isinstance(item, Column) and not item.alias:
            item.named(item.name)
    if any(one.is_columns and not _is_all_of_order(one) for one in select.find_all(Star)):
        raise refused(WHERE, "the subquery names columns by a pattern")
    for call in list(calls_in(select)):
        fields = [
            (at, one)
            for at, field in enumerate(call.fields)
            for one in (_columns_of(field, inside, outside) if isinstance(field, Star) else [field])
        ]
        call.arguments = [tree.Argument(expression=one) for _, one in fields]
        for note, own in (("modules", call.modules), ("bags", call.bags)):
            call.meta[note] = frozenset(new for new, (at, _) in enumerate(fields) if at in own)
        columns = [one for _, one in fields if isinstance(one, Column)]
        names = {one.key.lower(): one.name for one in columns}
        clashes = Counter(names.values())
        for one in columns:
            known = inside.resolve(one) or outside.resolve(one)
            if clashes[one.name] > 1 and known is not None:
                one.meta.setdefault(FIELD_NAME, ".".join(known))


def _is_all_of_order(star: Star) -> bool:
    """Whether it is ORDER BY ALL, which is about the select list."""
    return isinstance(star.parent, Ordered) and star.pattern is None


def _columns_of(star: Star, inside: Sources, outside: Sources) -> list[Column]:
    """The columns that a field `*` or `t.*` stands for."""
    if star.table:
        return columns_of_star(star, inside if inside.of(star.table) else outside, WHERE)
    if len(inside.of("")) != len(inside.names) or not is_whole_star(star):
        raise refused(WHERE, "a field of it is *. Name the columns")
    return [build.column(name, table) for table, name in inside.of("")]


@dataclass(slots=True)
class _Split:
    """Splits a subquery into its pairs, what is asked about them, and the rest.

    columns: what is read of the pairs, by a text that is the same for equal columns. values:
    expressions with calls that are computed for each pair. matched: the columns by whose values
    answers are found again; all if None.
    """

    select: Select
    lookup: Lookup
    columns: dict[str, Column] = field(default_factory=dict)
    values: Computed = field(default_factory=lambda: Computed(ours.inner))
    plain: list[Expression] = field(default_factory=list)
    asking: list[Expression] = field(default_factory=list)
    matched: list[int] | None = None
    _places: list[tuple[Expression, Column]] = field(default_factory=list)

    def take(self) -> None:
        """Find the conditions and values with calls, and the columns that they read."""
        self.plain, self.asking = parted(build.conjuncts(self.select.where))
        for part in self.asking:
            self.add(self._read_by(part))
        for call in [call for node in _rest(self.select) for call in calls_in(node)]:
            value = self._row_level(call)
            if all(value is not known for known, _ in self._places):
                self.add(self._read_by(value))
                self._places.append((value, self.values.column(self._typed(value), value.key)))

    def add(self, columns: Iterable[Column]) -> None:
        """Add columns that are read of the pairs."""
        for one in columns:
            copy = one.copy().named("")
            self.columns.setdefault(copy.key.lower(), copy)
            one.meta[_AT] = list(self.columns).index(copy.key.lower())

    def found(self, pairs: str, *, is_distinct: bool) -> Select:
        """What is asked about the pairs. is_distinct: whether one of those with equal values in the
        matched columns is enough."""
        items: list[Expression] = [
            build.column(ours.outer(at), pairs).named(ours.outer(at)) for at in self._numbers
        ]
        items += [self._moved(one, pairs) for one in self.values.items()]
        where = [self._moved(one, pairs) for one in self.asking]
        nothing: list[Expression] = [build.null().named(ours.NOTHING)]
        found = build.select(items or nothing, pairs, condition_of(where))
        if is_distinct:
            build.first_of(found, map(ours.outer, self._numbers))
        return found

    def match(self, table: str) -> Expression | None:
        """The condition that a row of a table is about a row of the subquery."""
        columns = list(self.columns.values())
        return match(((at, columns[at]) for at in self._numbers), table)

    def put(self, table: str) -> None:
        """Put the columns of a table in the place of the values."""
        for value, column in self._places:
            put = build.column(column.name, table).named(value.alias)
            value.replace(put)

    @property
    def _numbers(self) -> Sequence[int]:
        return range(len(self.columns)) if self.matched is None else self.matched

    def _read_by(self, node: Node) -> list[Column]:
        return list(columns_of(node, Context.of(self.select), WHERE, self.lookup))

    def _moved(self, node: Expression, pairs: str) -> Expression:
        """A copy of an expression over the pairs."""
        note_field_names(node)

        def put(part: Node) -> Expression | None:
            if not isinstance(part, Column) or _AT not in part.meta:
                return None
            moved = build.column(ours.outer(part.meta[_AT]), pairs).named(part.alias)
            named_like(moved, part)
            moved.meta.setdefault(FIELD_NAME, part.name)
            return moved

        moved = node.rebuilt(put)
        assert isinstance(moved, Expression)
        return moved

    def _typed(self, value: Expression) -> Expression:
        """A value as it is read where it is."""
        found = unnamed(value)
        if isinstance(value, Call) and needs_number(value):
            return build.cast(found, build.plain_type("DOUBLE"))
        if [*map(needs_number, calls_in(value))] != [*map(needs_number, calls_in(found))]:
            raise refused(WHERE, "its answer is needed as a number. Cast it: LLM(...)::DOUBLE")
        return found

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


def _pairs(split: _Split, outer: _Outer, lookup: Lookup) -> Select:
    """The distinct values that calls are asked about, for all rows of the outer query that its
    conditions leave."""
    columns = [one.copy().named(ours.outer(at)) for at, one in enumerate(split.columns.values())]
    rows = build.select(columns or [build.null().named(ours.NOTHING)])
    if split.select.source is not None:
        rows.source = split.select.source.copy()
    rows.where = condition_of(one.copy() for one in split.plain)
    first = None if split.asking else _first_rows(split.select, lookup)
    if first is not None:
        rows.qualify = _among("rank", first)
    seen, names = outer.seen, [item.alias for item in rows.items]
    items = [build.column(name, ours.LATERAL).named(name) for name in names]
    tables = [one for one in (seen.source,) if one is not None and not isinstance(one, tree.Empty)]
    pairs = build.select(items, build.joined([*tables, build.derived(rows, ours.LATERAL)]))
    is_whole = True
    for part in build.conjuncts(outer.select.where):
        more = pairs.copy()
        build.add_where(more, part.copy())
        is_open = any(map(has_call, outermost_queries(part))) or lookup.functions.is_volatile(part)
        is_taken = not is_open and lookup.columns(more, outer.select) is not None
        pairs, is_whole = (more, is_whole) if is_taken else (pairs, False)
    first = _first_rows(outer.select, lookup) if is_whole and outer.left is None else None
    if first is not None and not has_call(pairs):
        more = pairs.copy()
        more.qualify = _among("dense_rank", first)
        pairs = pairs if lookup.columns(more, outer.select) is None else more
    if lookup.columns(pairs, outer.select) is None:
        raise refused(WHERE, "what it reads of the outer query is unclear")
    build.set_modifier(pairs, tree.Distinct, tree.Distinct())
    return pairs


def _first_rows(select: Select, lookup: Lookup) -> tuple[int, list[Ordered]] | None:
    """How many rows LIMIT leaves, and the keys of ORDER BY, of a SELECT whose rows are those of its
    FROM clause; None if that is unknown before its calls are answered."""
    limits, functions = limits_of(select), lookup.functions
    if limits is None or select.order is None or functions.in_select(select):
        return None
    if any((select.distinct, select.qualify, select.sample)) or any(
        has_window(item) or makes_rows(item) for item in select.items
    ):
        return None
    keys = [key.copy() for key in select.order.keys]
    for key in keys:
        names = {one.name.lower() for one in key.find_all(Column) if len(one.names) == 1}
        named = [item for item in select.items if name_of(item).lower() in names]
        if isinstance(key.value, Column) and len(named) == 1:
            key.value = unnamed(named[0])
        elif named:
            return None
        is_open = has_call(key) or functions.has_query(key) or functions.is_volatile(key)
        if is_open or has_window(key) or key.find(Column) is None:
            return None
    return sum(limits), keys


def _among(name: str, first: tuple[int, list[Ordered]]) -> Expression:
    """`name() OVER (ORDER BY keys) <= most`: the first rows, and those with equal keys."""
    most, keys = first
    window = parser().expression(f"{name}() OVER ()")
    assert isinstance(window, tree.Window)
    window.orders = [key.copy() for key in keys]
    return build.compared("COMPARE_LESSTHANOREQUALTO", window, build.number(most))
