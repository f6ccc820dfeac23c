"""Calls in the conditions of joins.

They move to WHERE where this keeps their meaning:

FROM a JOIN b ON LLM(...) = 'Yes'  =>  FROM a JOIN b ON true WHERE LLM(...) = 'Yes'

The others are about a row and another row. Such pairs are written down with their answers before
the join, for the rows that its other conditions join, and looked up by the values of the rows:

FROM a LEFT JOIN b ON a.k = b.k AND LLM('...', a.t, b.t) = 'Yes'
=> WITH e AS (SELECT a.t AS x, b.t AS y FROM a JOIN b ON a.k = b.k
              WHERE LLM('...', a.t, b.t) = 'Yes')
   FROM a LEFT JOIN b ON a.k = b.k AND CASE WHEN EXISTS (
       SELECT 1 FROM e WHERE x IS NOT DISTINCT FROM a.t AND y IS NOT DISTINCT FROM b.t
   ) THEN true ELSE false END

For a SEMI or ANTI join one match of each row is enough, which takes the place of the other table:

FROM a SEMI JOIN b ON a.k = b.k AND LLM('...', a.t, b.t) = 'Yes'
=> WITH e AS (SELECT DISTINCT ON (x, y) a.k AS x, a.t AS y FROM a JOIN b ... WHERE ...)
   FROM a SEMI JOIN e ON x IS NOT DISTINCT FROM a.k AND y IS NOT DISTINCT FROM a.t

A condition depends on nothing but the values that it reads, so equal values may share its result.
Conditions of WHERE about the side whose rows the join keeps go before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from relquery.errors import UnsupportedQueryError
from relquery.sql import names as ours
from relquery.sql.binder.call import calls_directly, has_call
from relquery.sql.binder.functions import columns_in, has_lambda, outermost_queries
from relquery.sql.binder.sources import Context, Sources, joins_in, leaves, outer_columns
from relquery.sql.optimizer.reads import (
    Lookup,
    adds_rows,
    condition_of,
    derived,
    is_by_chance,
    is_inner,
    joins_around,
    parted,
    restored,
)
from relquery.sql.parser import build, tree
from relquery.sql.parser.tree import Column, Expression, Join, Node, Query, Select, Source, Star

_CHANGES = ("exclude_list", "qualified_exclude_list", "replace_list", "rename_list", "expr")


def answer_join_conditions(statement: Query, lookup: Lookup) -> bool:
    """The rule of this module; see `rules`. Raises UnsupportedQueryError."""
    for select in statement.find_all(Select):
        for join in joins_in(select.source):
            _check_method(join)
            if has_call(join.condition):
                if _may_move(join):
                    plain, asking = parted(build.conjuncts(join.condition))
                    join.condition = build.all_of(plain)
                    build.add_where(select, *asking)
                elif _is_answered_first(join.right, lookup):
                    continue
                elif not filter_first(_kept(join), dict(_about_kept(join, select, lookup)), select):
                    _answer(join, select, lookup)
                return True
    return False


def _may_move(join: Join) -> bool:
    """Whether WHERE can take the condition of a join: it and the joins around it only drop rows
    that do not meet it."""
    return is_inner(join) and not any(adds_rows(outer, side) for side, outer in joins_around(join))


def _is_answered_first(lateral: Source, lookup: Lookup) -> bool:
    """Whether a table has calls that depend on rows of the tables on its left."""
    selects = lateral.find_all(Select)
    return any(calls_directly(select) and not lookup.stands_alone(select) for select in selects)


def _check_method(join: Join) -> None:
    if has_call(join.condition) and join.method in ("ASOF", "POSITIONAL"):
        article = "an ASOF" if join.method == "ASOF" else "a POSITIONAL"
        raise UnsupportedQueryError(
            f"An LLM call is in the ON clause of {article} join, which cannot have one. Join on "
            "the other conditions in a subquery and call LLM on its rows."
        )


def _answer(join: Join, select: Select, lookup: Lookup) -> None:
    where = f"the ON clause of {'an' if join.kind in ('ANTI', 'INNER') else 'a'} {join.kind} join"
    name_tables(join, select, lookup)
    check_repeatable(join, select, where, lookup)
    inner = Join(left=join.left.copy(), right=join.right.copy(), is_implicit=False)
    inner.condition = build.boolean(True)
    pairs = build.select((), inner)
    sources = lookup.sources(pairs, select)
    if sources is None:
        raise refused(where, "its tables depend on a row of the outer query")
    plain, asking = parted(
        build.conjuncts(restored(join.condition or build.boolean(True), sources))
    )
    columns = _columns_read(asking, sources, where, lookup)
    is_search = join.kind in ("SEMI", "ANTI")
    if is_search:
        left = {leaf.name.lower() for leaf in leaves(join.left)}
        read = [*columns, *_columns_read(plain, sources, where, lookup)]
        own = {column.key.lower(): column for column in read if column.names[0].lower() in left}
        columns = list(own.values())
    names = [ours.outer(index) for index in range(len(columns))]
    items: list[Expression] = [
        column.copy().named(name) for column, name in zip(columns, names, strict=True)
    ]
    pairs.items = items or [build.null().named(ours.NOTHING)]
    if is_search:
        build.first_of(pairs, names)
    inner.condition = build.all_of(part.copy() for part in plain)
    build.add_where(
        pairs, *asking, *(condition for _, condition in _about_kept(join, select, lookup))
    )
    entry = add_entry(pairs, select)
    matched = match(enumerate(columns), entry)
    if is_search:
        join.right.replace(build.table(entry))
        join.condition = matched or build.boolean(True)
        return
    exists = build.exists(build.select([build.number(1)], entry, matched))
    # Without CASE, DuckDB 2.0.1 fails internally, and the database is lost, on INNER or LEFT JOIN
    # ... ON EXISTS (...) FULL JOIN ...; and it crashes where it reorders such a LEFT JOIN.
    holds = build.all_of([*plain, build.when(exists, build.boolean(True), build.boolean(False))])
    if lookup.sources(build.select((), join.right.copy()), select) is None:
        # LATERAL: DuckDB takes no subquery in its condition, but one in the query itself.
        rows = build.select([build.star()], join.right.copy(), holds)
        join.right.replace(build.derived(rows, join.right.name))
        holds = build.boolean(True)
    join.condition = holds


def _columns_read(
    nodes: list[Expression], sources: Sources, where: str, lookup: Lookup
) -> list[Column]:
    """The distinct columns that expressions read, qualified with their tables, because later rules
    may move the tables into a subquery. Raises UnsupportedQueryError if unclear."""
    columns: dict[str, Column] = {}
    for node in nodes:
        read = list(columns_of(node, sources.context, where, lookup))
        for star in node.find_all(Star):
            is_own = star.ancestor(Query) is node.ancestor(Query)
            if is_own or (star.table and sources.of(star.table)):
                read += columns_of_star(star, sources, where)
        for column in read:
            known = sources.resolve(column) if len(column.names) == 1 else None
            copy = column.copy().named("")
            copy.names = list(known or column.names)
            columns.setdefault(copy.key.lower(), copy)
    return list(columns.values())


def columns_of(node: Node, context: Context, where: str, lookup: Lookup) -> Iterator[Column]:
    """The columns of an expression, and those that its subqueries read from outside."""
    yield from columns_in(node)
    for query in outermost_queries(node):
        columns = outer_columns(query, lookup.database, context)
        if columns is None:
            raise refused(where, "a subquery inside it is unclear")
        yield from columns


def filter_first(side: Source, found: Mapping[int, Expression], select: Select) -> bool:
    """Move conditions of WHERE, by their place, into a query of the table that they are about, if
    one has calls. Returns whether they are moved.

    FROM a LEFT JOIN b ON LLM(...) = 'Yes' WHERE LLM(a.x) = 'Yes'
    => FROM (SELECT * FROM a WHERE LLM(a.x) = 'Yes') AS a LEFT JOIN b ON LLM(...) = 'Yes'
    """
    is_table = isinstance(side, tree.Derived | tree.Table) and side.sample is None
    if not is_table or not any(map(has_call, found.values())):
        return False
    if any(column.name.lower() == "rowid" for column in select.find_all(Column)):
        return False  # which a query has not
    left = [
        condition
        for index, condition in enumerate(build.conjuncts(select.where))
        if index not in found
    ]
    select.where = condition_of(left)
    own = build.select([build.star()], side.copy(), build.all_of(found.values()))
    side.replace(build.derived(own, side.name))
    return True


def _kept(join: Join) -> Source:
    return join.left if join.kind in ("LEFT", "SEMI", "ANTI") else join.right


def _about_kept(join: Join, select: Select, lookup: Lookup) -> Iterator[tuple[int, Expression]]:
    """The conditions of WHERE about the side whose rows a join keeps, by their place: without them
    a row of it is not in the result at all."""
    if join.kind in ("INNER", "FULL"):
        return
    if not any(adds_rows(outer, inner) for inner, outer in joins_around(join)):
        yield from about(_kept(join), select, lookup)


def about(side: Source, select: Select, lookup: Lookup) -> Iterator[tuple[int, Expression]]:
    """The conditions of WHERE that read only columns of some tables, by their place."""
    sources = lookup.sources(select)
    if sources is None:
        return
    names = {leaf.name.lower() for leaf in leaves(side)}
    for index, part in enumerate(build.conjuncts(select.where)):
        condition = restored(part, sources)
        is_open = lookup.functions.is_volatile(condition) or has_lambda(condition)
        if is_open or lookup.functions.has_query(condition) or condition.find(Star):
            continue
        known = [(column, sources.resolve(column)) for column in columns_in(condition)]
        if known and all(owner is not None and owner[0].lower() in names for _, owner in known):
            for column, owner in known:
                column.names = list(owner or ())
            yield index, condition


# Shared with the rule for correlated subqueries: what may be read beforehand, and where it is
# written down.


def refused(where: str, why: str) -> UnsupportedQueryError:
    """The error for a call that cannot be answered beforehand."""
    return UnsupportedQueryError(
        f"An LLM call is in {where}, and {why}. Join the tables on the other conditions in a "
        "subquery, and call LLM on its rows."
    )


def check_repeatable(node: Node, select: Select, where: str, lookup: Lookup) -> None:
    """Raises UnsupportedQueryError unless a part of a SELECT has the same rows when it is read
    again.

    A query with calls has: it is written down once.
    """
    if not lookup.database.compares_exactly:
        raise refused(where, "a default_collation makes different texts equal")
    for top in (node, *Context.of(select).needed_by([node])):
        for part in top.walk(prune=lambda one: isinstance(one, Select) and calls_directly(one)):
            if is_by_chance(part, lookup):
                raise refused(where, "its tables have other rows whenever they are read")


def columns_of_star(star: Star, sources: Sources, where: str) -> list[Column]:
    """The columns of `t.*`. Raises UnsupportedQueryError for a star that leaves some out."""
    if not star.table:
        raise refused(where, "a field of it is *. Name the table, as in t.*")
    known = {alias.lower(): columns for alias, columns in sources.columns.items()}
    names = known.get(star.table.lower())
    if not names or not is_whole_star(star):
        raise refused(where, "a field of it is a star. Name the columns")
    return [build.column(name, star.table) for name in names]


def is_whole_star(star: Star) -> bool:
    """Whether a star stands for all columns, as they are."""
    return not any(key in star.args for key in _CHANGES)


def name_tables(source: Source | None, select: Select, lookup: Lookup) -> None:
    """Turn the derived tables with calls of a part of a FROM clause into WITH entries, in place."""
    for item in list(leaves(source)):
        query = derived(item)
        if query is not None and has_call(query) and lookup.stands_alone(query):
            table = build.table(add_entry(query.copy(), select), item.alias)
            table.columns = item.columns
            item.replace(table)


def match(columns: Iterable[tuple[int, Column]], table: str) -> Expression | None:
    """The condition that a row of a table has the values of some columns, by their numbers; None if
    there are none."""
    pairs = ((build.column(ours.outer(place), table), column.copy()) for place, column in columns)
    return condition_of(build.compared(build.SAME, known, column) for known, column in pairs)


def add_entry(query: Query, select: Select) -> str:
    """Add a query to the WITH entries of a SELECT. Returns the entry's name."""
    return move_entry(build.entry("", query), select)


def move_entry(entry: tree.Entry, select: Select) -> str:
    """Add an entry to those of a SELECT, with a name of ours, which is returned."""
    taken = {entry.name for entry in select.root.find_all(tree.Entry)}
    names = map(ours.entry, range(len(taken) + 1))
    entry.name = next(name for name in names if name not in taken)
    select.entries = [*select.entries, entry]
    return entry.name
