"""Calls in a subquery that depends on a row of the outer query are answered beforehand.

SELECT a.id, (SELECT max(LLM('...', a.t, b.t)) FROM b WHERE b.k = a.k) FROM a WHERE p
=> WITH pairs AS (SELECT o.x, o.y, l.z
                  FROM (SELECT DISTINCT a.k AS x, a.t AS y FROM a WHERE p) AS o,
                       LATERAL (SELECT b.t AS z FROM b WHERE b.k = o.x) AS l),
        found AS (SELECT x, y, z, LLM('...', y, z) AS v FROM pairs)
   SELECT a.id, (SELECT max(v) FROM found
                 WHERE x IS NOT DISTINCT FROM a.k AND y IS NOT DISTINCT FROM a.t) FROM a WHERE p

`found` has the subquery's rows for each outer row, as far as conditions with calls leave them. So
the rest of the subquery stays as it is, with its aggregates, ORDER BY and LIMIT. EXISTS needs one
row of them:

EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND LLM('...', a.t, b.t) = 'Yes')
=> found AS (SELECT DISTINCT ON (x, y) x, y FROM pairs WHERE LLM('...', y, z) = 'Yes')
   EXISTS (SELECT 1 FROM found WHERE x IS NOT DISTINCT FROM a.k AND y IS NOT DISTINCT FROM a.t)
"""

from __future__ import annotations

from collections import Counter
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
)
from relquery.sql.binder.normalize import (
    is_order_name,
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
    about,
    add_entry,
    check_repeatable,
    columns_of,
    columns_of_star,
    filter_first,
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
_READ, _OWN = "read of the outer query", "own column"
"""Notes on a column of a subquery: its place among those of the outer query that are read; a text
that is the same for equal columns of its own tables."""


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
        if _move_entries(select, outer.select, lookup) or _filter(outer, lookup):
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
    is_search = isinstance(subquery, Subquery) and subquery.kind == "EXISTS" and not any(more)
    if is_search:
        select.items = [build.number(1)]
        if not has_call(select):
            return
    split = _Split.of(select, lookup)
    pairs = add_entry(_pairs(split, outer, lookup), outer.select)
    found = build.table(add_entry(split.found(pairs, is_search=is_search), outer.select))
    split.put(found.name)
    select.source, select.where = found, match(enumerate(split.read), found.name)


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
    """Write columns for stars, and name the fields of calls as they are named before."""
    items = lookup.items(select, inside)
    if items is None:
        raise refused(WHERE, "the subquery has a star. Name the columns")
    if any(isinstance(item, Star) for item in select.items):
        select.items = items
    for item in select.items:  # what reads them knows the names that they have now
        if isinstance(item, Column) and not item.alias:
            item.named(item.name)
    has_pattern = any(one.is_columns and not _is_of_order(one) for one in select.find_all(Star))
    if has_pattern or select.find(tree.Position):
        raise refused(WHERE, "the subquery names columns by a pattern or number")
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


def _is_of_order(star: Star) -> bool:
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
    """Splits a subquery into its rows, for all outer rows, what is asked about them, and the rest.

    read: the columns of the outer query that it reads. own: those of its tables that are read of
    its rows. values: expressions with calls that are computed for each row.
    """

    select: Select
    lookup: Lookup
    plain: list[Expression]
    asking: list[Expression]
    read: list[Column] = field(default_factory=list)
    own: Computed = field(default_factory=lambda: Computed(ours.column))
    values: Computed = field(default_factory=lambda: Computed(ours.inner))
    _places: list[tuple[Expression, Column]] = field(default_factory=list)

    @classmethod
    def of(cls, select: Select, lookup: Lookup) -> _Split:
        """Note on the columns of a subquery which they are of those that are read."""
        split = cls(select, lookup, *parted(build.conjuncts(select.where)))
        read, keys = split._outside(), list[str]()
        for one in read:
            copy = one.copy().named("")
            if copy.key.lower() not in keys:
                keys.append(copy.key.lower())
                split.read.append(copy)
            one.meta[_READ] = keys.index(copy.key.lower())
        rest = _rest(select)
        for call in [call for node in rest for call in calls_in(node)]:
            value = split._row_level(call)
            if all(value is not known for known, _ in split._places):
                split._note(value)
                split._places.append((value, split.values.column(split._typed(value), value.key)))
        for part in split.asking:
            split._note(part)
        taken = {id(part) for value, _ in split._places for part in value.walk()}
        named = {item.alias.lower() for item in select.items if item.alias}
        for node in rest:
            for column in split._note(node):
                is_name = is_order_name(column, named) and column.ancestor(Query) is select
                if not is_name and id(column) not in taken:
                    place = split.own.column(column, column.meta[_OWN])
                    split._places.append((column, place))
        return split

    def rows(self) -> Select:
        """The rows of the subquery for one of the outer rows."""
        items = [self._moved(item) for item in self.own.items()]
        rows = build.select(items or [build.null().named(ours.NOTHING)])
        if self.select.source is not None:
            source = self.select.source.rebuilt(self._of_outer)
            assert isinstance(source, Source)
            rows.source = source
        rows.where = condition_of(map(self._moved, self.plain))
        first = None if self.asking else _first_rows(self.select, self.lookup)
        if first is not None:
            rows.qualify = self._moved(_among(*first))
        return rows

    def found(self, pairs: str, *, is_search: bool) -> Select:
        """What is asked about the pairs. is_search: whether one for each outer row is enough."""
        names = [ours.outer(at) for at in range(len(self.read))]
        where = condition_of(self._over(part, pairs) for part in self.asking)
        if not is_search:
            names += [ours.column(at) for at in range(len(self.own.values))]
        items: list[Expression] = [build.column(one, pairs).named(one) for one in names]
        items += [self._over(one, pairs) for one in self.values.items()]
        found = build.select(items or [build.null().named(ours.NOTHING)], pairs, where)
        if is_search:
            build.first_of(found, names)
        return found

    def put(self, table: str) -> None:
        """Put the columns of a table in the place of what it has."""
        for value, column in self._places:
            put = build.column(column.name, table).named(value.alias)
            named_like(put, value)
            value.replace(put)

    def _outside(self) -> list[Column]:
        """The columns of the outer query that the subquery reads."""
        read = outer_columns(self.select, self.lookup.database, Context.of(self.select))
        if read is None:
            raise refused(WHERE, "its columns are unclear")
        return read

    def _note(self, node: Node) -> list[Column]:
        """Note on the columns of the subquery's tables that an expression reads which they are.
        Returns them."""
        read = columns_of(node, Context.of(self.select), WHERE, self.lookup)
        own = [one for one in read if _READ not in one.meta]
        for one in own:
            value = one.copy().named("")
            one.meta[_OWN] = value.key.lower()
            self.own.column(value, value.key.lower())
        return own

    def _moved(self, node: Expression) -> Expression:
        """A copy of an expression that reads the outer columns from the outer rows."""
        moved = node.rebuilt(self._of_outer)
        assert isinstance(moved, Expression)
        return moved

    def _of_outer(self, part: Node) -> Expression | None:
        if not isinstance(part, Column) or _READ not in part.meta:
            return None
        return build.column(ours.outer(part.meta[_READ]), ours.OUTER).named(part.alias)

    def _over(self, node: Expression, pairs: str) -> Expression:
        """A copy of an expression over the pairs."""
        note_field_names(node)

        def put(part: Node) -> Expression | None:
            if not isinstance(part, Column) or not (_READ in part.meta or _OWN in part.meta):
                return None
            name = ours.outer(part.meta.get(_READ, 0))
            if _OWN in part.meta:
                name = self.own.column(part, part.meta[_OWN]).name
            moved = build.column(name, pairs).named(part.alias)
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
    """The rows of a subquery for all rows of the outer query that its conditions leave."""
    rows, select = split.rows(), outer.select
    names = [ours.outer(at) for at in range(len(split.read))]
    seen = from_only(
        outer.seen, [one.named(name) for one, name in zip(split.read, names, strict=True)]
    )
    is_whole = True
    for part in build.conjuncts(select.where):
        more = seen.copy()
        build.add_where(more, part.copy())
        is_open = has_call(part) or lookup.functions.is_volatile(part)
        is_taken = not is_open and lookup.columns(more, select) is not None
        seen, is_whole = (more, is_whole) if is_taken else (seen, False)
    first = _first_rows(select, lookup) if is_whole and outer.left is None else None
    if first is not None:
        more = seen.copy()
        more.qualify = _among(*first)
        seen = seen if lookup.columns(more, select) is None else more
    build.set_modifier(seen, tree.Distinct, tree.Distinct())
    items = [build.column(name, ours.OUTER).named(name) for name in names]
    items += [build.column(one.alias, ours.LATERAL).named(one.alias) for one in rows.items]
    tables = [build.derived(seen, ours.OUTER), build.derived(rows, ours.LATERAL)]
    pairs = build.select(items, build.joined(tables))
    if lookup.columns(pairs, select) is None:
        raise refused(WHERE, "what it reads of the outer query is unclear")
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


def _among(most: int, keys: list[Ordered]) -> Expression:
    """`rank() OVER (ORDER BY keys) <= most`: the first rows, and those with equal keys."""
    window = parser().expression("rank() OVER ()")
    assert isinstance(window, tree.Window)
    window.orders = [key.copy() for key in keys]
    return build.compared("COMPARE_LESSTHANOREQUALTO", window, build.number(most))
