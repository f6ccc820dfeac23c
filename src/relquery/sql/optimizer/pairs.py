"""Calls about a row and another row, in a correlated subquery or the condition of a join: the pairs
are written down with their answers beforehand, and then looked up by the values of the rows.

Here is what both rules need: what may be read for that, and where it is written down.
"""

from __future__ import annotations

from relquery.errors import UnsupportedQueryError
from relquery.sql import names as ours
from relquery.sql.binder.call import calls_directly, has_call
from relquery.sql.binder.functions import columns_in
from relquery.sql.binder.scopes import Context
from relquery.sql.binder.sources import Sources, leaves
from relquery.sql.optimizer.lookup import Lookup
from relquery.sql.optimizer.reads import derived, is_by_chance
from relquery.sql.parser import build
from relquery.sql.parser.tree import (
    Column,
    Entry,
    Expression,
    Node,
    Query,
    Select,
    Source,
    Star,
)

_CHANGES = ("exclude_list", "qualified_exclude_list", "replace_list", "rename_list", "expr")


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


def columns_read(node: Expression, sources: Sources, where: str) -> list[Column]:
    """The distinct columns that an expression reads. Raises UnsupportedQueryError if unclear."""
    if node.find(Query) is not None:
        raise refused(where, "the condition contains a subquery")
    stars = [one for star in node.find_all(Star) for one in columns_of_star(star, sources, where)]
    return list({one.key.lower(): one for one in [*columns_in(node), *stars]}.values())


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


def add_entry(query: Query, select: Select) -> str:
    """Add a query to the WITH entries of a SELECT. Returns the entry's name."""
    taken = {entry.name for entry in select.root.find_all(Entry)}
    names = map(ours.entry, range(len(taken) + 1))
    name = next(name for name in names if name not in taken)
    select.entries = [*select.entries, build.entry(name, query)]
    return name


def name_tables(source: Source | None, select: Select, lookup: Lookup) -> None:
    """Turn the derived tables with calls of a part of a FROM clause into WITH entries, in place."""
    for item in list(leaves(source)):
        query = derived(item)
        if query is not None and has_call(query) and lookup.stands_alone(query):
            table = build.table(add_entry(query.copy(), select), item.alias)
            table.columns = item.columns
            item.replace(table)
