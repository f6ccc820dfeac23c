"""What a condition with calls may read, so that its result can be looked up by these values."""

from __future__ import annotations

from sqlglot import exp

from relquery.errors import UnsupportedQueryError
from relquery.sql.read.binding import is_variable
from relquery.sql.read.from_clause import Sources, from_only, is_star
from relquery.sql.read.scopes import has_call, visible_ctes
from relquery.sql.read.source import to_sql
from relquery.sql.rewrite.lookup import Lookup


def refused(where: str, why: str) -> UnsupportedQueryError:
    """The error for a call that cannot be answered beforehand."""
    return UnsupportedQueryError(
        f"An LLM call is in {where}, and {why}. Join the tables on the other conditions in a "
        "subquery, and call LLM on its rows."
    )


def check_repeatable(select: exp.Select, where: str, lookup: Lookup) -> None:
    """Raises UnsupportedQueryError unless a FROM clause has the same rows when it is read again.

    A table with calls has: it is written down once.
    """
    if not lookup.database.compares_exactly:
        raise refused(where, "a default_collation makes different texts equal")
    entries = [entry for entry in visible_ctes(select) if not has_call(entry)]
    for node in (from_only(select), *entries):
        sampled = node.find(exp.TableSample) is not None
        if sampled or lookup.aggregates.is_volatile(node) or _cuts_by_chance(node):
            raise refused(where, "its tables have other rows whenever they are read")


def columns_read(node: exp.Expr, sources: Sources, where: str) -> list[exp.Column]:
    """The distinct columns that an expression reads. Raises UnsupportedQueryError if unclear."""
    if node.find(exp.Query):
        raise refused(where, "the condition contains a subquery")
    found: dict[str, exp.Column] = {}
    for column in node.find_all(exp.Column):
        if is_variable(column):
            continue
        for one in columns_of_star(column, sources, where) if is_star(column) else [column]:
            found.setdefault(to_sql(one).lower(), one)
    if any(not isinstance(star.parent, exp.Column) for star in node.find_all(exp.Star)):
        raise refused(where, "a field of it is *. Name the table, as in t.*")
    return list(found.values())


def columns_of_star(star: exp.Column, sources: Sources, where: str) -> list[exp.Column]:
    """The columns of `t.*`. Raises UnsupportedQueryError for a star that leaves some out."""
    inner = star.this
    names = {alias.lower(): columns for alias, columns in sources.columns.items()}
    known = names.get(star.table.lower())
    if not known or any(inner.args.get(key) for key in ("except_", "except", "replace", "rename")):
        raise refused(where, "a field of it is a star. Name the columns")
    return [exp.column(name, table=star.args["table"].copy(), quoted=True) for name in known]


def _cuts_by_chance(node: exp.Expr) -> bool:
    return any(
        query.args.get("limit") and not query.args.get("order")
        for query in node.find_all(exp.Query)
    )
