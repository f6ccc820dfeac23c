"""The arguments of a macro mean what they mean where it is called, also inside its subqueries and
lambdas. In WHERE, ON and FROM they do not: DuckDB puts them in before it reads names there.

CREATE MACRO worst(x) AS (SELECT min(LLM('...', text)) FROM reviews WHERE film = x)
SELECT worst(film) FROM films  =>  (SELECT min(...) FROM reviews WHERE film = films.film)
"""

from __future__ import annotations

from collections.abc import Mapping

from relquery.errors import QueryError, UnsupportedQueryError
from relquery.sql.binder.call import readable
from relquery.sql.binder.functions import is_variable
from relquery.sql.binder.sources import Context, Sources, read_sources, with_both_sides
from relquery.sql.host.database import Database
from relquery.sql.parser import tree
from relquery.sql.parser.tree import Column, Expression, Node, Query, Select

_HIDDEN = "hidden"
"""Note on a column of an argument: which of the SELECTs around it are the macro's, by ranges of
their numbers from the inside out."""


def hide_scopes(value: Expression, place: Node) -> None:
    """Note on an argument's columns that the SELECTs around their place in a macro's body are not
    for them."""
    depth = sum(one.parent is not None for one in _selects_around(place))
    for column in value.find_all(Column) if depth else ():
        own = len(_selects_around(column))
        column.meta[_HIDDEN] = (*column.meta.get(_HIDDEN, ()), range(own, own + depth))


def is_open(call: Node) -> bool:
    """Whether a macro's tables hide those outside from its arguments: in WHERE, ON and FROM, where
    DuckDB puts them in before it reads names."""
    inner = (call, *call.ancestors())
    clause = next((one for one in inner if isinstance(one.parent, Select)), call)
    return clause.place in ("where_clause", "from_table")


def rename_variables(body: Node, values: Mapping[str, Expression]) -> Node:
    """A macro's body in which no variable of a lambda is named like a column of its arguments."""
    taken = {one.names[0].lower() for value in values.values() for one in value.find_all(Column)}
    body = body.copy()
    for function in body.find_all(tree.Lambda):
        for name in function.names & taken:
            named = (one for one in function.find_all(Column) if one.names[0].lower() == name)
            for one in list(filter(is_variable, named)):
                one.names = [f"{name}_of_macro", *one.names[1:]]
    return body


def qualify_arguments(statement: Query, database: Database) -> None:
    """Qualify the columns of arguments that a macro's own tables would hide, in place.

    Raises UnsupportedQueryError where no name of the column says which one it is.
    """
    for column in list(statement.find_all(Column)):
        hidden = column.meta.pop(_HIDDEN, ())
        if not hidden or is_variable(column):
            continue
        passed: list[Sources | None] = []
        is_hidden = False
        for at, select in enumerate(_selects_around(column)):
            sources, is_macros = _read(select, database), any(at in one for one in hidden)
            has = sources is None or sources.has_column(column) or _names(column, sources)
            if has and not is_macros:
                break
            is_hidden |= has
            passed.append(sources)
        else:
            sources = None
        if not is_hidden:
            continue
        found = None if sources is None else sources.resolve(column)
        if found is None or any(
            one is None or found[0].lower() in map(str.lower, one.columns) for one in passed
        ):
            raise UnsupportedQueryError(
                f"The macro's subquery has a column or table of the name {readable(column)}, which "
                "is in an argument as well. Give the table of the argument an alias of its own, "
                "and write it before the column."
            )
        column.names = [found[0], found[1]]


def _names(column: Column, sources: Sources) -> bool:
    """Whether the first of a column's names is that of a source or of an item."""
    first = column.names[0].lower()
    items = () if column.table else (item.alias for item in sources.select.items if item.alias)
    return first in map(str.lower, [*(sources.columns if column.table else ()), *items])


def _read(select: Select, database: Database) -> Sources | None:
    probe = with_both_sides(select)
    probe.items = [item.copy() for item in select.items]
    try:
        return read_sources(database, probe, Context.of(select))
    except QueryError:
        return None


def _selects_around(node: Node) -> list[Select]:
    return [one for one in node.ancestors() if isinstance(one, Select)]
