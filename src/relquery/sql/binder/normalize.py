"""The plain form of a SELECT with calls, into which it is rewritten before it is planned.

Afterwards the select list has no stars, and only ORDER BY uses its names and positions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from relquery.errors import QueryError, UnsupportedQueryError
from relquery.sql.binder.call import (
    FIELD_NAME,
    Call,
    calls_in,
    field_name,
    has_call,
    makes_items,
    readable,
)
from relquery.sql.binder.functions import (
    FunctionCatalog,
    clauses_of,
    declares,
    is_lambda,
    is_variable,
)
from relquery.sql.binder.sources import Kinds, Sources, outer_columns
from relquery.sql.parser import build, tree
from relquery.sql.parser.tree import Column, Expression, FunctionCall, Node, Query, Select, Star

NOT_A_NAME = "not a name"
"""Note on a key of ORDER BY that is a column of the FROM clause, whatever the list calls so."""

LITERAL = "literal"
"""Note on a key that is a literal: what it is written as elsewhere."""


def normalize(select: Select, sources: Sources, functions: FunctionCatalog) -> Select:
    """A plain form of a SELECT that gives the same rows."""
    select = select.copy()
    stars = _Stars(select, sources)
    select.items = [part for item in select.items for part in stars.items(item)]
    _check_stars(select)
    if select.distinct is not None:
        select.distinct.on = list(map(unnamed, select.distinct.on))
    restore_columns(select, sources)
    replace_aliases(select, sources, functions)
    select.keys = [item_at(key, select) for key in select.keys] or None  # type: ignore[assignment]
    if has_grouping_sets(select):
        _replace_literals(select, functions)
    _name_fields(select, sources, functions)
    return select


def _name_fields(select: Select, sources: Sources, functions: FunctionCatalog) -> None:
    """Name what struct_pack calls like its columns, in place: they get other names later."""
    for pack in [
        pack for pack in select.find_all(FunctionCall) if pack.name.lower() == "struct_pack"
    ]:
        for argument in pack.arguments:
            if not argument.name and isinstance(argument.value, Column):
                column = sources.resolve(argument.value)
                argument.name = argument.value.name if column is None else column[1]
            elif not argument.name and functions.is_aggregate(argument.value):
                argument.name = readable(argument.value)


@dataclass(frozen=True, slots=True)
class _Stars:
    """A rewriter that writes out what stands for several items of a SELECT.

    *                              =>  a, b
    unnest({'x': LLM(...)})        =>  {'x': LLM(...)}.x AS x
    """

    select: Select
    sources: Sources

    def items(self, item: Expression) -> Iterator[Expression]:
        """The items that one stands for."""
        if isinstance(item, Star) and not (item.is_columns and has_call(item)):
            yield from self.sources.expanded(item)
        elif isinstance(item, FunctionCall) and item.name.lower() in ("unnest", "unlist"):
            yield from self._unnested(item) or [item]
        else:
            yield item

    def _unnested(self, item: FunctionCall) -> list[Expression]:
        """The fields of what `unnest` makes columns of; none if it makes rows."""
        value, *others = item.values
        database = self.sources.database
        kind = Kinds(database, self.sources.context, self.select).of(value) or ""
        if not (kind.startswith("STRUCT(") and kind.endswith(")")):
            return []
        if others:
            raise UnsupportedQueryError(
                f"{readable(item)} has options, which a query with LLM calls does not support. "
                "Write unnest(value), and unnest of its columns around it."
            )
        return [
            build.operation("STRUCT_EXTRACT", unnamed(value), build.text(name)).named(name)
            for name, _ in database.type(kind).children
        ]


_OF_NAMES = ("~~", "!~~", "~~*", "!~~*", "~~~", "regexp_full_match", "regexp_matches")
"""Functions that choose columns by their names: * LIKE 'k%', * SIMILAR TO 'k|n'."""


def _check_stars(select: Select) -> None:
    """Raises UnsupportedQueryError for a star that stands for several expressions."""
    for star in (star for clause in clauses_of(select) for star in clause.find_all(Star)):
        is_key = isinstance(star.parent, tree.Ordered) and star.pattern is None  # ORDER BY ALL
        function = None if star.parent is None else star.parent.parent
        is_chosen = isinstance(function, FunctionCall) and function.name in _OF_NAMES
        is_several = is_chosen or (makes_items(star) and not is_key)
        if is_several and star.ancestor(Query) is select:
            raise UnsupportedQueryError(
                f"{readable(star)} expands to several columns, which a query with LLM calls does "
                "not support. Name the columns instead."
            )


def replace_aliases(select: Select, sources: Sources, functions: FunctionCatalog) -> None:
    """Replace names that the select list gives by what they name, in place."""
    _Aliases(select, sources, functions).replace()


@dataclass(slots=True)
class _Aliases:
    """A rewriter that replaces names of the select list by what they name, as DuckDB allows
    everywhere.

    A column of the FROM clause goes first, with two exceptions. Where a name is a whole key of
    DISTINCT ON or ORDER BY it goes last, and in ORDER BY the name stays. In HAVING, outside of
    aggregates, it goes last unless it is a key of GROUP BY.
    """

    select: Select
    sources: Sources
    functions: FunctionCatalog
    _named: dict[str, Expression] = field(default_factory=dict)

    def replace(self) -> None:
        """Replace them in the SELECT, in place."""
        select = self.select
        for index in range(len(select.items)):
            self._replace_in(select.items[index])
            item = select.items[index]
            if item.alias:
                self._named.setdefault(item.alias.lower(), unnamed(item))
        for item in select.items:  # these name keys, even those that are named later
            for part in list(item.find_all(tree.Operator)):
                if part.kind == "GROUPING_FUNCTION" and _query_around(part, select) is None:
                    self._replace_in(part)
        self._replace_in_having()
        if select.distinct is not None:
            for key in list(select.distinct.on):
                if isinstance(key, Column) and len(key.names) == 1:
                    self._put(key, self._named.get(key.name.lower()))
        clauses = [select.where, *select.keys, select.having, select.qualify, select.distinct]
        for node in filter(None, clauses):
            self._replace_in(node)
        for ordered in list(select.order.keys) if select.order is not None else []:
            self._replace_in_order(ordered)

    def _replace_in_order(self, key: tree.Ordered) -> None:
        """In ORDER BY a name that is given with AS goes before one that a column has by itself."""
        items, column = self.select.items, key.value
        if not isinstance(column, Column):
            self._replace_in(column)
            return
        name = column.name.lower() if len(column.names) == 1 else None
        same = [index for index, item in enumerate(items) if name_of(item).lower() == name]
        given = [place for place in same if items[place].alias]
        if given and len(same) > 1:  # of several the last, as DuckDB has it
            key.value = build.number(1 + given[-1])

    def _replace_in_having(self) -> None:
        """In HAVING a name of the select list goes before a column that is not a key."""
        select = self.select
        if select.having is None:
            return
        keys = [self._named_key(item_at(key, select)) for key in select.keys]
        known = {self.sources.resolve(key) for key in keys if isinstance(key, Column)} - {None}
        for column in list(select.having.find_all(Column)):
            is_key = len(column.names) > 1 or self.sources.resolve(column) in known
            if is_key or _query_around(column, select) is not None:
                continue
            if not (is_variable(column) or self.functions.around(column, select)):
                self._put(column, self._named.get(column.name.lower()))

    def _named_key(self, key: Expression) -> Expression:
        """What a key of GROUP BY names in the select list, if no table has a column of the name."""
        if not isinstance(key, Column) or len(key.names) > 1 or self.sources.has(key.name):
            return key
        return self._named.get(key.name.lower(), key)

    def _replace_in(self, node: Node) -> None:
        for column in list(node.find_all(Column)):
            name = column.names[0].lower()
            is_known = len(column.names) > 1 or self.sources.has(name)
            if is_known or name not in self._named or is_variable(column):
                continue
            query = _query_around(column, self.select)
            if query is None:
                self._put(column, self._named[name])
            else:
                outer = outer_columns(query, self.sources.database, self.sources.context)
                if any(column is outer_column for outer_column in outer or ()):
                    raise UnsupportedQueryError(
                        f"The subquery reads '{column.name}', an alias of the select list. Write "
                        "the expression instead, or define the alias in a subquery of the FROM "
                        "clause."
                    )

    def _put(self, column: Column, named: Expression | None) -> None:
        """Put a copy of what a name means in its place, if it means anything."""
        if named is None:
            return
        put = named.copy()
        is_key = column.place in ("group_expressions", "distinct_on_targets")
        if is_key or isinstance(column.parent, tree.Ordered):
            put = as_key(put)
        put.meta[FIELD_NAME] = column.meta.get(FIELD_NAME, column.name)
        column.replace(put.named(column.alias))


def _query_around(node: Node, top: Node) -> Query | None:
    """The outermost query between a node and `top`."""
    query = None
    for parent in node.ancestors():
        if parent is top:
            break
        query = parent if isinstance(parent, Query) else query
    return query


def restore_columns(select: Select, sources: Sources) -> None:
    """`title.upper()` as the function upper of the column title, in place.

    DuckDB takes what is before a function for a schema until it knows the columns.
    """
    for node in list(select.find_all(FunctionCall)):
        before = [part for part in (node.catalog, node.schema) if part]
        if not before or node.ancestor(Query) is not select or declares(node, before[0]):
            continue
        names = {*sources.columns, *(item.alias for item in select.items)}
        if sources.has(before[0]) or before[0].lower() in map(str.lower, names):
            node.set("schema", None)
            node.set("catalog", None)
            first = tree.Argument(expression=build.column(before[-1], *before[:-1]))
            node.arguments = [first, *node.arguments]


def is_order_name(node: Node, names: Collection[str]) -> bool:
    """Whether a node is a key of ORDER BY that names a column of the result (lower-case names).

    The ORDER BY is that of a query, not that of a window or an aggregate, which sees no results.
    """
    return (
        isinstance(node, Column)
        and isinstance(node.parent, tree.Ordered)
        and len(node.names) == 1
        and node.name.lower() in names
        and NOT_A_NAME not in node.meta
        and isinstance(clause := node.parent.parent, tree.Order | None)
        and (clause is None or isinstance(clause.parent, Query | None))
    )


def item_at(key: Expression, select: Select) -> Expression:
    """A copy of the item of the select list whose position `key` gives; else `key` itself."""
    if isinstance(key, tree.Constant) and key.kind == "INTEGER" and key.text.isdigit():
        place = int(key.text) - 1
        if 0 <= place < len(select.items):
            return as_key(unnamed(select.items[place]))
    return key


def unnamed(item: Expression) -> Expression:
    """A copy of an item of the select list without its name."""
    copy = item.copy()
    copy.alias = ""
    return copy


def as_key(item: Expression) -> Expression:
    """An item as a key of GROUP BY or ORDER BY, where a literal would be a position."""
    value = item
    if isinstance(item, FunctionCall) and item.name == "-" and len(item.arguments) == 1:
        value = item.values[0]
    if isinstance(value, tree.Constant):
        made = build.operation(build.COALESCE, item.copy(), item.copy())
        made.meta[LITERAL] = item.key
        return made
    return item


def _replace_literals(select: Select, functions: FunctionCatalog) -> None:
    """Write literals as the key that they are is written, in place, so that they are NULL with it.

    SELECT 3 AS g ... GROUP BY ROLLUP (g)  =>  SELECT COALESCE(3, 3) AS g ... GROUP BY ROLLUP (...)
    """
    keys = {key.meta[LITERAL]: key for key in select.keys if LITERAL in key.meta}

    def part(node: Node) -> Node | None:
        if isinstance(node, Query) or functions.is_aggregate(node):
            return node.copy()
        if not isinstance(node, Expression) or node.key not in keys:
            return None
        put = keys[node.key].copy()
        put.meta[FIELD_NAME] = node.meta.get(FIELD_NAME, field_name(node))
        return put.named(node.alias)

    ordered = [key.value for key in select.order.keys] if select.order is not None else []
    ordered = [key for key in ordered if not isinstance(key, tree.Constant)]  # that is a position
    for clause in filter(None, (*select.items, select.having, select.qualify, *ordered)):
        clause.replace(clause.rebuilt(part))


def name_of(item: Expression) -> str:
    """The name of an item: as given, or that of its column; "" for what DuckDB names."""
    return item.alias or (item.name if isinstance(item, Column) else "")


def keys_of(select: Select, functions: FunctionCatalog) -> list[Expression]:
    """The expressions that a normalized SELECT groups by."""
    if select.is_grouped_by_all:
        # DuckDB does not count items without a column, so a table without rows has a group.
        return [
            item
            for item in map(unnamed, select.items)
            if not functions.has_aggregate(item) and item.find(Column) is not None
        ]
    return select.keys


def has_grouping_sets(select: Select) -> bool:
    """Whether a row can be in more than one group: GROUPING SETS, ROLLUP or CUBE."""
    return len(select.sets) > 1


def check_places(select: Select) -> None:
    """Raises UnsupportedQueryError for a call that would have to be answered before rows exist."""
    limit = select.limit
    before_rows: list[tuple[str, Node | None]] = [
        ("FROM", select.source),
        ("LIMIT", None if limit is None else limit.limit),
        ("OFFSET", None if limit is None else limit.offset),
    ]
    for clause, node in before_rows:
        if has_call(node):
            raise UnsupportedQueryError(
                f"An LLM call is in {clause}, where it would have to be answered before there are "
                "rows. Call it in SELECT or WHERE, also of a subquery: FROM (SELECT LLM(...))."
            )
    for call in calls_in(select):
        if any(map(is_lambda, call.ancestors())):
            raise UnsupportedQueryError(
                "An LLM call is inside a lambda or list comprehension. Call it per row: "
                "SELECT LLM('...', item) FROM t, unnest(items) AS u(item)."
            )
        if _is_condition(call):
            raise QueryError(
                "An LLM call is used where true or false is needed, but its answer is text. "
                "Compare it: LLM(...) = 'Yes'."
            )


def _is_condition(call: Call) -> bool:
    parent = call.parent
    if isinstance(parent, tree.When):
        return call.place == "when_expr"
    if isinstance(parent, Select):
        return call.place in ("where_clause", "having", "qualify")
    is_not = isinstance(parent, tree.Operator) and parent.kind == build.NOT
    return isinstance(parent, tree.Conjunction) or is_not
