"""Moves queries into WITH entries, so that several places can read them and they are run once."""

from __future__ import annotations

from sqlglot import exp

from relquery.sql import names as ours
from relquery.sql.read.scopes import has_call
from relquery.sql.rewrite.sources import derived, readers_of


def add_entry(query: exp.Expr, select: exp.Select) -> str:
    """Add a query to the WITH clause that a SELECT sees last. Returns the entry's name."""
    taken = {entry.alias for entry in select.root().find_all(exp.CTE)}
    names = map(ours.entry, range(len(taken) + 1))
    name = next(name for name in names if name not in taken)
    home = _home(select)
    entry = exp.CTE(this=query, alias=exp.TableAlias(this=exp.to_identifier(name)))
    if home.args.get("with_") is None:
        home.set("with_", exp.With(expressions=[]))
    home.args["with_"].append("expressions", entry)
    return name


def name_tables(select: exp.Select) -> None:
    """Turn the derived tables with calls of a FROM clause into WITH entries, in place."""
    for reader in readers_of(select):
        query = derived(reader.item)
        if query is not None and has_call(query):
            alias = reader.item.args.get("alias")
            table = exp.to_table(add_entry(query.copy(), select))
            table.set("alias", alias.copy() if alias else None)
            reader.item.replace(table)


def _home(select: exp.Select) -> exp.Expr:
    """The query whose WITH clause a SELECT sees last; the branches of a set operation share one."""
    node: exp.Expr = select
    while node.args.get("with_") is None and isinstance(node.parent, exp.SetOperation):
        node = node.parent
    return node
