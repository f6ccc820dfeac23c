"""The rows of a correlated subquery for all rows of the outer query, and what is asked of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from relquery.sql import names as ours
from relquery.sql.binder.call import FIELD_NAME, Call, calls_in, has_call, named_like
from relquery.sql.binder.functions import clauses_of, has_window, makes_rows
from relquery.sql.binder.normalize import is_order_name, name_of, unnamed
from relquery.sql.binder.sources import Context, from_only, outer_columns
from relquery.sql.binder.stand_ins import needs_number
from relquery.sql.optimizer.join_conditions import columns_of, refused
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
)

WHERE = "a subquery that depends on a row of the outer query"
_READ, _OWN = "read of the outer query", "own column"
"""Notes on a column of a subquery: its place among those of the outer query that are read; a text
that is the same for equal columns of its own tables."""


@dataclass(frozen=True, slots=True)
class OuterQuery:
    """The SELECT whose rows a subquery depends on. left: which of its tables a LATERAL one sees,
    those on its left; None for a subquery of an expression, which sees all."""

    select: Select
    left: list[Source] | None

    @property
    def seen(self) -> Select:
        """The FROM clause that the subquery sees."""
        if self.left is None:
            return from_only(self.select)
        return build.select([], build.joined([side.copy() for side in self.left]))


def clauses_beside_where(select: Select) -> list[Node]:
    """The parts of a SELECT but for FROM, WITH and WHERE."""
    return [clause for clause in clauses_of(select) if clause.place != "where_clause"]


@dataclass(slots=True)
class SubqueryRows:
    """A subquery's rows, for all outer rows, and what is asked about them.

    read: the columns of the outer query that it reads. own: those of its tables that are read of
    its rows. values: expressions with calls that are computed for each row.
    """

    select: Select
    lookup: Lookup
    plain: list[Expression]
    asking: list[Expression]
    read: list[Column] = field(default_factory=list)
    own: Computed = field(default_factory=lambda: Computed(ours.own))
    values: Computed = field(default_factory=lambda: Computed(ours.inner))
    _places: list[tuple[Expression, Column]] = field(default_factory=list)

    @classmethod
    def of(cls, select: Select, lookup: Lookup) -> SubqueryRows:
        """Note on the columns of a subquery which they are of those that are read."""
        made = cls(select, lookup, *parted(build.conjuncts(select.where)))
        read, keys = made._outside(), list[str]()
        for read_column in read:
            copy = read_column.copy().named("")
            if copy.key.lower() not in keys:
                keys.append(copy.key.lower())
                made.read.append(copy)
            read_column.meta[_READ] = keys.index(copy.key.lower())
        rest = clauses_beside_where(select)
        for call in [call for node in rest for call in calls_in(node)]:
            value = made._row_level(call)
            if all(value is not known for known, _ in made._places):
                made._note(value)
                made._places.append((value, made.values.column(made._typed(value), value.key)))
        for part in made.asking:
            made._note(part)
        taken = {id(part) for value, _ in made._places for part in value.walk()}
        for node in rest:
            for column in made._note(node):
                if id(column) not in taken:
                    place = made.own.column(column, column.meta[_OWN])
                    made._places.append((column, place))
        return made

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
        names = [ours.outer(index) for index in range(len(self.read))]
        where = condition_of(self._over(part, pairs) for part in self.asking)
        if not is_search:
            names += [ours.own(index) for index in range(len(self.own.values))]
        items: list[Expression] = [build.column(name, pairs).named(name) for name in names]
        items += [self._over(value, pairs) for value in self.values.items()]
        select = build.select(items or [build.null().named(ours.NOTHING)], pairs, where)
        if is_search:
            build.first_of(select, names)
        return select

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
        named = {item.alias.lower() for item in self.select.items if item.alias}
        read = columns_of(node, Context.of(self.select), WHERE, self.lookup)
        own = [
            column
            for column in read
            if _READ not in column.meta
            and not (is_order_name(column, named) and column.ancestor(Query) is self.select)
        ]
        for column in own:
            value = column.copy().named("")
            column.meta[_OWN] = value.key.lower()
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
        bare = unnamed(value)
        if isinstance(value, Call) and needs_number(value):
            return build.cast(bare, build.plain_type("DOUBLE"))
        if [*map(needs_number, calls_in(value))] != [*map(needs_number, calls_in(bare))]:
            raise refused(WHERE, "its answer is needed as a number. Cast it: LLM(...)::DOUBLE")
        return bare

    def _row_level(self, call: Call) -> Expression:
        """The largest expression around a call that is computed for each row."""
        functions = self.lookup.functions
        value: Expression = call
        for over in call.ancestors():
            if isinstance(over, tree.Argument | tree.When):
                continue
            if not isinstance(over, Expression) or functions.is_aggregate(over):
                break
            if functions.has_query(over) or functions.has_aggregate(over):
                break
            if has_window(over) or makes_rows(over):
                break
            value = over
        return value


def pairs_of(subquery: SubqueryRows, outer: OuterQuery, lookup: Lookup) -> Select:
    """The rows of a subquery for all rows of the outer query that its conditions leave."""
    rows, select = subquery.rows(), outer.select
    names = [ours.outer(index) for index in range(len(subquery.read))]
    seen = from_only(
        outer.seen,
        [column.copy().named(name) for column, name in zip(subquery.read, names, strict=True)],
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
    items += [build.column(item.alias, ours.LATERAL).named(item.alias) for item in rows.items]
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
        names = {column.name.lower() for column in key.find_all(Column) if len(column.names) == 1}
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
