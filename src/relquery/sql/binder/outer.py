"""The columns of a subquery that come from outside of it."""

from __future__ import annotations

from relquery.errors import QueryError
from relquery.sql.binder.functions import is_variable
from relquery.sql.binder.scopes import Context
from relquery.sql.binder.sources import Sources, read_sources
from relquery.sql.host.database import Database
from relquery.sql.parser.tree import Column, Query, Select


def outer_columns(query: Query, database: Database, context: Context) -> list[Column] | None:
    """The columns in a subquery that come from outside its own FROM clauses; None if unknown.

    context: the WITH entries that the subquery sees from outside.
    """
    known: dict[int, Sources] = {}

    def sources_of(select: Select) -> Sources:
        if id(select) not in known:
            inner = Context.of(select)
            own = {entry.name.lower() for entry in inner.entries}
            outer = [entry for entry in context.entries if entry.name.lower() not in own]
            beside = Context((*outer, *inner.entries))
            known[id(select)] = read_sources(database, select, beside)
        return known[id(select)]

    def is_given(column: Column) -> bool:
        """Whether a column comes from a SELECT inside the query."""
        first, name = column.names[0], column.name.lower()
        for select in column.ancestors():
            if isinstance(select, Select):
                sources = sources_of(select)
                tables = {alias.lower() for alias in sources.columns}
                has_prefix = len(column.names) > 1
                if (has_prefix and first.lower() in tables) or sources.has(first):
                    return True
                named = {item.alias.lower() for item in select.items if item.alias}
                if not has_prefix and name in named:
                    return True
            if select is query:
                return False
        return False

    try:
        return [
            column
            for column in query.find_all(Column)
            if not is_variable(column) and not is_given(column)
        ]
    except QueryError:  # a FROM clause that depends on a row of the outer query
        return None
