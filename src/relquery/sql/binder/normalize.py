"""Rewrites one SELECT with calls into a plain form before it is planned.

Afterwards the select list has no stars, and only ORDER BY uses its names and positions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from relquery.errors import QueryError, UnsupportedQueryError
from relquery.sql import names as ours
from relquery.sql.binder.call import (
    FIELD_NAME,
    Call,
    asking_in,
    calls_in,
    has_call,
    makes_items,
    readable,
)
from relquery.sql.binder.functions import (
    FunctionCatalog,
    declares,
    is_lambda,
    is_variable,
    makes_rows,
)
from relquery.sql.binder.scopes import Context
from relquery.sql.binder.sources import Kinds, Sources, leaves, outer_columns, star_columns
from relquery.sql.host.database import Database
from relquery.sql.parser import build
from relquery.sql.parser.tree import (
    Argument,
    Column,
    Conjunction,
    Constant,
    Expression,
    Function,
    Node,
    Operator,
    Order,
    Ordered,
    Query,
    Select,
    Star,
    When,
    Window,
)

NOT_A_NAME = "not a name"
"""Note on a key of ORDER BY that is a column of the FROM clause, whatever the list calls so."""


def normalize(
    select: Select,
    sources: Sources,
    database: Database,
    context: Context,
    functions: FunctionCatalog,
) -> Select:
    """A plain form of a SELECT that gives the same rows."""
    select = select.copy()
    expansion = _Expansion(select, sources, database, context)
    select.items = [part for item in select.items for part in expansion.items(item)]
    if select.where is not None:
        parts = build.conjuncts(select.where)
        select.where = build.all_of(one for part in parts for one in expansion.by_column(part))
    if select.distinct is not None:
        keys = select.distinct.on
        select.distinct.on = [one for key in keys for one in expansion.keys(key)]
    if select.order is not None:
        select.order.set("orders", list(expansion.ordered(select.order)))
    restore_columns(select, sources)
    _Aliases(sources, database, context, functions).replace(select)
    select.keys = [_as_item(key, select) for key in select.keys] or None  # type: ignore[assignment]
    return select


@dataclass(frozen=True, slots=True)
class _Expansion:
    """Writes out what stands for several items of a SELECT.

    *                              =>  a, b
    LLM('...', COLUMNS('a|b'))     =>  LLM('...', a) AS a, LLM('...', b) AS b
    unnest({'x': LLM(...)})        =>  {'x': LLM(...)}.x AS x
    """

    select: Select
    sources: Sources
    database: Database
    context: Context

    def items(self, item: Expression) -> Iterator[Expression]:
        """The items that one stands for."""
        if isinstance(item, Star) and not (item.is_columns and has_call(item)):
            yield from star_columns(item, self.sources, self.database, self.select, self.context)
        elif isinstance(star := _star_of(item), Star):
            yield from star_columns(
                star, self.sources, self.database, self.select, self.context, item
            )
        elif (struct := self._unnested(item)) is not None:
            yield from self._fields(*struct)
        else:
            yield from self.by_column(item)

    def keys(self, key: Expression) -> Iterator[Expression]:
        """The keys that one of ORDER BY or DISTINCT ON stands for."""
        if isinstance(key, Star) and key.pattern is not None:
            yield from star_columns(key, self.sources, self.database, self.select, self.context)
        elif isinstance(key, Star):
            yield key  # ORDER BY ALL
        else:
            yield from (unnamed(one) for one in self.by_column(key))

    def ordered(self, order: Order) -> Iterator[Ordered]:
        """The keys of ORDER BY, each in the direction of the one that it is from."""
        for key in order.keys:
            for value in self.keys(key.value):
                one = key.copy()
                one.value = value.copy()
                yield one

    def by_column(self, node: Expression) -> Iterator[Expression]:
        """An expression for each column that COLUMNS stands for in it."""
        stars = [
            star
            for star in node.find_all(Star)
            if star.ancestor(Query) is node.ancestor(Query) and makes_items(star)
        ]
        if not stars:
            yield node
            return
        first, written = stars[0], readable(stars[0])
        if any(star.key != first.key or star is node for star in stars) or has_call(first):
            raise UnsupportedQueryError(
                f"{readable(node)} expands to several columns, which a query with LLM calls does "
                "not support. Name the columns instead."
            )
        columns = star_columns(first, self.sources, self.database, self.select, self.context)
        for column in columns:

            def put(part: Node, column: Expression = column) -> Node | None:
                return column.copy() if isinstance(part, Star) and part.key == first.key else None

            made = node.rebuilt(put)
            assert isinstance(made, Expression)
            for call in calls_in(made):
                call.meta["text"] = call.written.replace(written, readable(column))
            yield made if node.alias else made.named(name_of(column))

    def _unnested(self, item: Expression) -> tuple[Expression, bool] | None:
        """What `unnest` makes columns of, and whether also of the structs in it."""
        if not isinstance(item, Function) or item.name.lower() not in ("unnest", "unlist"):
            return None
        (value, *_), named = item.values, {one.name.lower(): one.value for one in item.arguments}
        kind = Kinds(self.database, self.context, self.select).of(value)
        deep = named.get("recursive")
        is_deep = isinstance(deep, Constant) and deep.text == "true"
        is_struct = kind is not None and kind.startswith("STRUCT(") and kind.endswith(")")
        return (value, is_deep) if is_struct else None

    def _fields(self, value: Expression, is_deep: bool) -> Iterator[Expression]:
        kind = Kinds(self.database, self.context, self.select).of(value)
        for name, part in self.database.type(str(kind)).children:
            field = build.operation("STRUCT_EXTRACT", unnamed(value), build.text(name))
            if is_deep and part.id == "struct":
                yield from self._fields(field, is_deep)
            else:
                yield field.named(name)


def _star_of(item: Expression) -> Expression | None:
    """The star of `* LIKE 'k%'` and `* SIMILAR TO 'k|n'`."""
    if not isinstance(item, Function) or item.name not in _OF_NAMES or not item.arguments:
        return None
    star = item.values[0]
    return None if isinstance(star, Star) and star.is_columns else star


_OF_NAMES = ("~~", "!~~", "~~*", "!~~*", "~~~", "regexp_full_match")


def check_forms(tree: Node) -> None:
    """Raises UnsupportedQueryError for a function of ours with a clause of an aggregate's."""
    for call in asking_in(tree):
        name = call.name.upper()
        is_aggregate = name.lower() in ours.AGGREGATES
        clauses = {
            "OVER": isinstance(call, Window),
            "FILTER": call.filter is not None and not is_aggregate,
            "DISTINCT": call.distinct and not is_aggregate,
            "ORDER BY": bool(call.orders) and not is_aggregate and not isinstance(call, Window),
            "IGNORE NULLS": bool(call.args.get("ignore_nulls")),
        }
        clause = next((one for one, is_there in clauses.items() if is_there), None)
        if clause and is_aggregate:
            raise UnsupportedQueryError(
                f"{name} does not take {clause}: it is asked once per group. Write it with GROUP "
                "BY in a subquery, and join its rows."
            )
        if clause:
            raise UnsupportedQueryError(
                f"An LLM call does not take {clause}: it runs once per row, and once for equal "
                f"inputs. Remove {clause}."
            )


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
                f"An LLM call is in the {clause} clause, where it would have to be answered before "
                "there are rows. Call it in SELECT or WHERE."
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


def check_fields(select: Select) -> None:
    """Raises UnsupportedQueryError for a call with a field that gives several rows."""
    if any(map(makes_rows, calls_in(select))):
        raise UnsupportedQueryError(
            "A field of an LLM call expands to several rows (unnest). Expand them first: "
            "SELECT LLM('...', item) FROM t, unnest(items) AS u(item)."
        )


def _is_condition(call: Call) -> bool:
    parent = call.parent
    if isinstance(parent, When):
        return call.place == "when_expr"
    if isinstance(parent, Select):
        return call.place in ("where_clause", "having", "qualify")
    is_not = isinstance(parent, Operator) and parent.kind == build.NOT
    return isinstance(parent, Conjunction) or is_not


def is_order_name(node: Node, names: Collection[str]) -> bool:
    """Whether a node is a key of ORDER BY that names a column of the result (lower-case names).

    The ORDER BY is that of a query, not that of a window or an aggregate, which sees no results.
    """
    return (
        isinstance(node, Column)
        and isinstance(node.parent, Ordered)
        and len(node.names) == 1
        and node.name.lower() in names
        and NOT_A_NAME not in node.meta
        and _is_of_query(node.parent)
    )


def _is_of_query(key: Ordered) -> bool:
    clause = key.parent
    return clause is None or (
        isinstance(clause, Order) and (clause.parent is None or isinstance(clause.parent, Query))
    )


def position_of(key: Node, select: Select) -> int | None:
    """The place, from 0, of the item that a key gives by its number."""
    if isinstance(key, Constant) and key.kind == "INTEGER" and key.text.isdigit():
        position = int(key.text)
        if 1 <= position <= len(select.items):
            return position - 1
    return None


def item_at(key: Expression, select: Select) -> Expression:
    """A copy of the item of the select list whose position `key` gives; else `key` itself."""
    at = position_of(key, select)
    return key if at is None else as_key(unnamed(select.items[at]))


def _as_item(key: Expression, select: Select) -> Expression:
    return item_at(key, select)


def unnamed(item: Expression) -> Expression:
    """A copy of an item of the select list without its name."""
    copy = item.copy()
    copy.alias = ""
    return copy


def as_key(item: Expression) -> Expression:
    """An item as a key of GROUP BY or ORDER BY, where a literal would be a position."""
    value = item
    if isinstance(item, Function) and item.name == "-" and len(item.arguments) == 1:
        value = item.values[0]
    if isinstance(value, Constant):
        return build.operation(build.COALESCE, item.copy(), item.copy())
    return item


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


def restore_columns(select: Select, sources: Sources) -> None:
    """`title.upper()` as the function upper of the column title, in place.

    DuckDB takes what is before a function for a schema until it knows the columns.
    """
    for node in list(select.find_all(Function)):
        before = [part for part in (node.catalog, node.schema) if part]
        if not before or node.ancestor(Query) is not select or declares(node, before[0]):
            continue
        names = {*sources.columns, *(item.alias for item in select.items)}
        if sources.has(before[0]) or before[0].lower() in map(str.lower, names):
            node.set("schema", None)
            node.set("catalog", None)
            own = node.arguments
            node.arguments = [Argument(expression=build.column(before[-1], *before[:-1])), *own]


@dataclass(slots=True)
class _Aliases:
    """Replaces names that the select list gives by what they name, as DuckDB allows everywhere.

    A column of the FROM clause goes first, with two exceptions. Where a name is a whole key of
    DISTINCT ON or ORDER BY it goes last, and in ORDER BY the name stays. In HAVING, outside of
    aggregates, it goes last unless it is a key of GROUP BY.
    """

    sources: Sources
    database: Database
    context: Context
    functions: FunctionCatalog
    _named: dict[str, Expression] = field(default_factory=dict)

    def replace(self, select: Select) -> None:
        """Replace them in a SELECT, in place."""
        for at in range(len(select.items)):
            self._replace_in(select.items[at], select)
            item = select.items[at]
            if item.alias:
                self._named.setdefault(item.alias.lower(), unnamed(item))
        for item in select.items:  # these name keys, even those that are named later
            for part in list(item.find_all(Operator)):
                if part.kind == "GROUPING_FUNCTION" and not in_subquery(part, select):
                    self._replace_in(part, select)
        self._replace_in_having(select)
        if select.distinct is not None:
            self._replace_whole_keys(select.distinct.on)
        for node in _after_list(select):
            self._replace_in(node, select)
        for key in list(select.order.keys) if select.order is not None else []:
            if not isinstance(key.value, Column):
                self._replace_in(key.value, select)
            elif len(key.value.names) == 1:
                self._replace_where_twice(key, select)

    def _replace_where_twice(self, key: Ordered, select: Select) -> None:
        """In ORDER BY a name that is given with AS goes before one that a column has by itself."""
        assert isinstance(key.value, Column)
        name = key.value.name.lower()
        same = [at for at, item in enumerate(select.items) if name_of(item).lower() == name]
        given = [at for at in same if select.items[at].alias]
        if given and len(same) > 1:  # of several the last, as DuckDB has it
            key.value = build.number(1 + given[-1])

    def _replace_whole_keys(self, keys: list[Expression]) -> None:
        """In DISTINCT ON, a key that is an alias means the alias, even if it is a column too."""
        for key in list(keys):
            if isinstance(key, Column) and len(key.names) == 1 and key.name.lower() in self._named:
                self._put(key, self._named[key.name.lower()].copy())

    def _replace_in_having(self, select: Select) -> None:
        """In HAVING a name of the select list goes before a column that is not a key."""
        if select.having is None:
            return
        keys = [self._named_key(item_at(key, select)) for key in select.keys]
        known = {self.sources.resolve(key) for key in keys if isinstance(key, Column)} - {None}
        for column in list(select.having.find_all(Column)):
            if len(column.names) > 1 or column.name.lower() not in self._named:
                continue
            if self.sources.resolve(column) in known or in_subquery(column, select):
                continue
            if not (is_variable(column) or self.functions.around(column, select)):
                self._put(column, self._named[column.name.lower()].copy())

    def _named_key(self, key: Expression) -> Expression:
        """What a key of GROUP BY names in the select list, if no table has a column of the name."""
        is_name = isinstance(key, Column) and len(key.names) == 1
        if not isinstance(key, Column) or not is_name or self.sources.has(key.name):
            return key
        return self._named.get(key.name.lower(), key)

    def _replace_in(self, node: Node, select: Select) -> None:
        for column in list(node.find_all(Column)):
            name = column.names[0].lower()
            is_alias = name == "alias" and len(column.names) == 2
            if is_alias and not self.sources.has("alias") and not _is_source("alias", self.sources):
                name = column.name.lower()  # `alias.x` is x of the select list
            elif len(column.names) > 1 or self.sources.has(name):
                continue
            if name not in self._named or is_variable(column):
                continue
            query = _query_around(column, select)
            if query is None:
                self._put(column, self._named[name].copy())
            elif self._is_from_outside(column, query):
                self._put(column, self._for_subquery(column, query))

    def _put(self, column: Column, named: Expression) -> None:
        is_key = isinstance(column.parent, Ordered) or column.place in (
            "group_expressions",
            "distinct_on_targets",
        )
        if is_key:
            named = as_key(named)
        named.meta[FIELD_NAME] = column.meta.get(FIELD_NAME, column.name)
        column.replace(named.named(column.alias))

    def _is_from_outside(self, column: Column, query: Query) -> bool:
        outer = outer_columns(query, self.database, self.context)
        return outer is not None and any(column is one for one in outer)

    def _for_subquery(self, column: Column, query: Query) -> Expression:
        """The expression behind an alias, with columns qualified so they work in the subquery."""
        named = self._named[column.name.lower()].copy()
        inside = {
            leaf.name.lower() for select in query.find_all(Select) for leaf in leaves(select.source)
        }
        if has_call(named) or self.functions.has_query(named):
            raise self._ambiguous(column)

        def qualified(part: Node) -> Expression | None:
            if not isinstance(part, Column) or is_variable(part):
                return None
            found = self.sources.resolve(part)
            if found is None or found[0].lower() in inside:
                raise self._ambiguous(column)
            return build.column(found[1], found[0])

        changed = named.rebuilt(qualified)
        assert isinstance(changed, Expression)
        return changed

    def _ambiguous(self, column: Column) -> UnsupportedQueryError:
        return UnsupportedQueryError(
            f"The subquery reads '{column.name}', an alias of the select list. Write the "
            "expression instead, or define the alias in a subquery of the FROM clause."
        )


def _is_source(name: str, sources: Sources) -> bool:
    return any(alias.lower() == name for alias in sources.columns)


def _after_list(select: Select) -> Iterator[Node]:
    """The clauses, but for ORDER BY, that may read names of the select list."""
    if select.where is not None:
        yield select.where
    yield from list(select.keys)
    for node in (select.having, select.qualify, select.distinct):
        if node is not None:
            yield node


def name_of(item: Expression) -> str:
    """The name of an item: as given, or that of its column; "" for what DuckDB names."""
    return item.alias or (item.name if isinstance(item, Column) else "")


def _query_around(node: Node, top: Node) -> Query | None:
    """The outermost query between a node and `top`."""
    found = None
    for parent in node.ancestors():
        if parent is top:
            break
        found = parent if isinstance(parent, Query) else found
    return found


def in_subquery(node: Node, top: Node) -> bool:
    """Whether there is a query between a node and `top`."""
    return _query_around(node, top) is not None
