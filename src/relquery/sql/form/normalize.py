"""Rewrites one SELECT with calls into a plain form before it is planned.

Afterwards the select list has no stars, and only ORDER BY uses its names and positions.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import cast

from sqlglot import exp

from relquery.errors import QueryError, UnsupportedQueryError
from relquery.sql import names as ours
from relquery.sql.host.database import Database
from relquery.sql.read.aggregates import Aggregates
from relquery.sql.read.binding import is_variable, outer_columns
from relquery.sql.read.from_clause import Sources, is_star, star_columns
from relquery.sql.read.methods import restore_columns
from relquery.sql.read.scopes import Context, calls_in, has_call
from relquery.sql.read.source import FIELD_NAME, FUNCTION, to_sql

_SETS_OF_KEYS = (exp.Rollup, exp.Cube, exp.GroupingSets, exp.Tuple)
# What has keys, for which a literal would be a position.
_KEYS = (exp.Group, exp.Ordered, *_SETS_OF_KEYS)
_BEFORE_ROWS = ("from_", "joins", "laterals", "sample", "limit", "offset")


def normalize(
    select: exp.Select,
    sources: Sources,
    database: Database,
    context: Context,
    aggregates: Aggregates,
) -> exp.Select:
    """A plain form of a SELECT that gives the same rows."""
    select = select.copy()
    items: list[exp.Expr] = []
    for item in select.expressions:
        if is_star(item):
            items += star_columns(item, sources, database, select, context)
        else:
            _check_no_star(item)
            items.append(item)
    select.set("expressions", items)
    restore_columns(select, sources)
    _Aliases(sources, database, context, aggregates).replace(select)
    _replace_positions(select)
    return select


def _check_no_star(item: exp.Expr) -> None:
    """Raises UnsupportedQueryError for a star that an expression expands to several columns."""
    for star in item.find_all(exp.Star, exp.Columns):
        parent = star.parent.parent if isinstance(star.parent, exp.Column) else star.parent
        if not isinstance(parent, exp.Func) and not in_subquery(star, item):
            raise UnsupportedQueryError(
                f"{to_sql(item)} expands to several columns, which a query with LLM calls does "
                "not support. Name the columns instead."
            )


def check_forms(tree: exp.Expr) -> None:
    """Raises UnsupportedQueryError for a call with a clause that belongs to an aggregate."""
    for call in calls_in(tree):
        if call.meta[FUNCTION] in ours.AGGREGATES and not isinstance(call.parent, exp.Window):
            continue
        clause = _CLAUSES_OF_AGGREGATES.get(type(call.parent)) if _is_its_own(call) else None
        for argument in call.expressions:
            if isinstance(argument, exp.Distinct | exp.Order):
                clause = _CLAUSES_OF_AGGREGATES[type(argument)]
        if clause and call.meta[FUNCTION] in ours.AGGREGATES:
            raise UnsupportedQueryError(
                f"{call.meta[FUNCTION].upper()} does not take {clause}: it is asked once per "
                "group. Write it with GROUP BY in a subquery, and join its rows."
            )
        if clause:
            raise UnsupportedQueryError(
                f"An LLM call does not take {clause}: it runs once per row, and once for equal "
                f"inputs. Remove {clause}."
            )


def _is_its_own(call: exp.Expr) -> bool:
    """Whether the clause around a call belongs to the call, not to an aggregate around both."""
    clause = call.parent
    if call.arg_key != "this" or clause is None:
        return False
    in_function = isinstance(clause, exp.Order | exp.IgnoreNulls | exp.RespectNulls)
    return not (in_function and isinstance(clause.parent, exp.Func))


_CLAUSES_OF_AGGREGATES: dict[object, str] = {
    exp.Window: "OVER",
    exp.Filter: "FILTER",
    exp.Distinct: "DISTINCT",
    exp.Order: "ORDER BY",
    exp.IgnoreNulls: "IGNORE NULLS",
    exp.RespectNulls: "RESPECT NULLS",
    exp.WithinGroup: "WITHIN GROUP",
}


def check_places(select: exp.Select) -> None:
    """Raises UnsupportedQueryError for a call that would have to be answered before rows exist."""
    for clause in _BEFORE_ROWS:
        nodes = select.args.get(clause) or []
        for node in nodes if isinstance(nodes, list) else [nodes]:
            if has_call(node):
                raise UnsupportedQueryError(
                    f"An LLM call is in the {clause.strip('_').upper()} clause, where it would "
                    "have to be answered before there are rows. Call it in SELECT or WHERE."
                )
    for call in calls_in(select):
        if call.find_ancestor(exp.Lambda, exp.Comprehension) is not None:
            raise UnsupportedQueryError(
                "An LLM call is inside a lambda or list comprehension. Call it per row: "
                "SELECT LLM('...', item) FROM t, unnest(items) AS u(item)."
            )
        if any(isinstance(part, exp.UDTF | exp.Explode) for part in call.walk()):
            raise UnsupportedQueryError(
                "A field of an LLM call expands to several rows (unnest). Expand them first: "
                "SELECT LLM('...', item) FROM t, unnest(items) AS u(item)."
            )
        if _is_condition(call):
            raise QueryError(
                "An LLM call is used where true or false is needed, but its answer is text. "
                "Compare it: LLM(...) = 'Yes'."
            )


def _is_condition(call: exp.Expr) -> bool:
    node, parent = call, call.parent
    while isinstance(parent, exp.Paren):
        node, parent = parent, parent.parent
    if isinstance(parent, exp.If):
        is_value = isinstance(parent.parent, exp.Case) and parent.parent.args.get("this")
        return node.arg_key == "this" and not is_value
    return isinstance(parent, exp.Where | exp.Having | exp.Qualify | exp.And | exp.Or | exp.Not)


def conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    """The conditions that a condition joins with AND."""
    if condition is None:
        return []
    if isinstance(condition, exp.Paren):
        return conjuncts(condition.this)
    if isinstance(condition, exp.And):
        return conjuncts(condition.this) + conjuncts(condition.expression)
    return [condition]


def without_alias(item: exp.Expr) -> exp.Expr:
    """The expression of an item of the select list."""
    return item.this if isinstance(item, exp.Alias) else item


def is_order_name(node: exp.Expr, names: Collection[str]) -> bool:
    """Whether a node is a key of ORDER BY that names a column of the result (lower-case names).

    The ORDER BY is that of a query, not that of a window or an aggregate, which sees no results.
    """
    return (
        isinstance(node, exp.Column)
        and isinstance(node.parent, exp.Ordered)
        and not node.table
        and node.name.lower() in names
        and _is_of_query(node.parent)
    )


def _is_of_query(key: exp.Ordered) -> bool:
    clause = key.parent
    return clause is None or clause.parent is None or isinstance(clause.parent, exp.Query)


def _replace_positions(select: exp.Select) -> None:
    """Replace numbers in GROUP BY with the select list items at these positions."""
    for key in group_keys(select):
        if (item := item_at(key, select)) is not key:
            key.replace(item)


def group_keys(select: exp.Select) -> list[exp.Expr]:
    """The GROUP BY keys, with those of ROLLUP, CUBE and GROUPING SETS; none for GROUP BY ALL."""
    group = select.args.get("group")
    return [] if group is None else _keys_in(group)


def has_grouping_sets(select: exp.Select) -> bool:
    """Whether a row can be in more than one group: GROUPING SETS, ROLLUP or CUBE."""
    group = select.args.get("group")
    return group is not None and group.find(exp.Rollup, exp.Cube, exp.GroupingSets) is not None


def _keys_in(node: exp.Expr) -> list[exp.Expr]:
    keys: list[exp.Expr] = []
    for part in node.expressions:
        keys += _keys_in(part) if isinstance(part, _SETS_OF_KEYS) else [part]
    return keys


def item_at(key: exp.Expr, select: exp.Select) -> exp.Expr:
    """A copy of the item of the select list whose position `key` gives; else `key` itself."""
    if isinstance(key, exp.Literal) and not key.is_string and key.this.isdigit():
        position = int(key.this)
        if 1 <= position <= len(select.expressions):
            return as_key(without_alias(select.expressions[position - 1]).copy())
    return key


def as_key(item: exp.Expr) -> exp.Expr:
    """An item as a key of GROUP BY or ORDER BY, where a literal would be a position."""
    bare = item.unnest()
    value = bare.this.unnest() if isinstance(bare, exp.Neg) else bare
    if isinstance(value, exp.Literal | exp.Null | exp.Boolean):
        return exp.Coalesce(this=bare.copy(), expressions=[bare.copy()])
    return item


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
    aggregates: Aggregates
    _named: dict[str, exp.Expr] = field(default_factory=dict)

    def replace(self, select: exp.Select) -> None:
        """Replace them in a SELECT, in place."""
        for item in select.expressions:
            self._replace_in(item)
            if isinstance(item, exp.Alias):
                self._named.setdefault(item.alias.lower(), item.this)
        for item in select.expressions:  # these name keys, even those that are named later
            for part in item.find_all(exp.Grouping, exp.GroupingId):
                if not in_subquery(part, select):
                    self._replace_in(part)
        self._replace_in_having(select)
        for clause in ("where", "group", "having", "qualify", "distinct"):
            if (node := select.args.get(clause)) is not None:
                self._replace_whole_keys(node.args.get("on"))
                self._replace_in(node)
        order = select.args.get("order")
        for key in order.expressions if order is not None else ():
            if not isinstance(key.this, exp.Column):
                self._replace_in(key)
            elif not key.this.table:
                self._replace_where_twice(key, select)

    def _replace_where_twice(self, key: exp.Ordered, select: exp.Select) -> None:
        """In ORDER BY a name that is given with AS goes before one that a column has by itself."""
        name = key.this.name.lower()
        same = [item for item in select.expressions if item.alias_or_name.lower() == name]
        given = [item for item in same if isinstance(item, exp.Alias)]
        if given and len(same) > 1:  # of several the last, as DuckDB has it
            key.set("this", exp.Literal.number(1 + select.expressions.index(given[-1])))

    def _replace_whole_keys(self, on: exp.Expr | None) -> None:
        """In DISTINCT ON, a key that is an alias means the alias, even if it is a column too."""
        for key in list(on.expressions) if on is not None else ():
            if isinstance(key, exp.Column) and not key.table and key.name.lower() in self._named:
                self._put(key, self._named[key.name.lower()].copy())

    def _replace_in_having(self, select: exp.Select) -> None:
        """In HAVING a name of the select list goes before a column that is not a key."""
        having = select.args.get("having")
        keys = [item_at(key, select).unnest() for key in group_keys(select)]
        known = {self.sources.resolve(key) for key in keys if isinstance(key, exp.Column)} - {None}
        for column in list(having.find_all(exp.Column)) if having is not None else ():
            if column.table or column.name.lower() not in self._named:
                continue
            if self.sources.resolve(column) in known or in_subquery(column, select):
                continue
            if not (is_variable(column) or self.aggregates.around(column, select)):
                self._put(column, self._named[column.name.lower()].copy())

    def _replace_in(self, node: exp.Expr) -> None:
        for column in list(node.find_all(exp.Column)):
            name = column.name.lower()
            if column.table or name not in self._named or self.sources.has(name):
                continue
            if is_variable(column):
                continue
            if (query := _query_around(column, node)) is None:
                self._put(column, self._named[name].copy())
            elif self._is_from_outside(column, query):
                self._put(column, self._for_subquery(column, query))

    def _put(self, column: exp.Column, named: exp.Expr) -> None:
        if isinstance(column.parent, _KEYS):
            named = as_key(named)
        if not isinstance(named, exp.Column | exp.Anonymous | exp.Literal | exp.Coalesce):
            named = exp.paren(named, copy=False)
        named.meta[FIELD_NAME] = column.meta_get(FIELD_NAME, column.name)
        column.replace(named)

    def _is_from_outside(self, column: exp.Column, query: exp.Expr) -> bool:
        outer = outer_columns(query, self.database, self.context)
        return outer is not None and any(column is one for one in outer)

    def _for_subquery(self, column: exp.Column, query: exp.Expr) -> exp.Expr:
        """The expression behind an alias, with columns qualified so they work in the subquery."""
        named = self._named[column.name.lower()].copy()
        holder = exp.paren(named, copy=False)
        inside = {table.alias_or_name.lower() for table in query.find_all(exp.Table, exp.Subquery)}
        for inner in list(holder.find_all(exp.Column)):
            found = self.sources.resolve(inner)
            if found is None or found[0].lower() in inside:
                raise self._ambiguous(column)
            inner.replace(exp.column(found[1], table=found[0], quoted=True))
        if has_call(holder) or holder.find(exp.Query):
            raise self._ambiguous(column)
        return cast(exp.Expr, holder.this.pop())

    def _ambiguous(self, column: exp.Column) -> UnsupportedQueryError:
        return UnsupportedQueryError(
            f"The subquery reads '{column.name}', an alias of the select list. Write the "
            "expression instead, or define the alias in a subquery of the FROM clause."
        )


def _query_around(node: exp.Expr, top: exp.Expr) -> exp.Expr | None:
    """The outermost query between a node and `top`."""
    found, parent = None, node.parent
    while parent is not None and parent is not top:
        found = parent if isinstance(parent, exp.Query) else found
        parent = parent.parent
    return found


def in_subquery(node: exp.Expr, top: exp.Expr) -> bool:
    """Whether there is a query between a node and `top`."""
    return _query_around(node, top) is not None
