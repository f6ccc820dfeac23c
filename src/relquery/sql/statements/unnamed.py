"""Names of columns that a macro or a parameter decides: `SELECT is_nice(review), $n + 1`.

Such items are marked with a name of ours before macros and parameters are replaced; afterwards the
mark becomes the name that DuckDB gives to the item as written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlglot import exp

from relquery.errors import QueryError
from relquery.sql import names as ours
from relquery.sql.host.database import Database
from relquery.sql.host.kept import Definition, Key
from relquery.sql.read.check import column_names
from relquery.sql.read.scopes import context_of
from relquery.sql.read.source import Source
from relquery.sql.statements.expand import macro_called

_Definitions = Mapping[Key, Definition]


def mark_unnamed(tree: exp.Expr, definitions: _Definitions) -> None:
    """Mark items without a name that read a macro or a parameter, in place."""
    for number, (select, at) in enumerate(list(_unnamed(tree, definitions))):
        item = select.expressions[at]
        item.replace(exp.alias_(item.copy(), f"{ours.ITEM}{number}"))


def with_names(
    tree: exp.Expr, written: exp.Expr, definitions: _Definitions, source: Source, database: Database
) -> exp.Expr:
    """A copy of a marked tree with DuckDB's names. written: the tree before it was marked."""
    names = {
        f"{ours.ITEM}{number}": _name(select, at, source, database)
        for number, (select, at) in enumerate(_unnamed(written, definitions))
    }
    return without_marks(tree, names)


def without_marks(tree: exp.Expr, names: Mapping[str, str | None] | None = None) -> exp.Expr:
    """A copy of a marked tree in which marks have become names, or are gone."""
    tree = tree.copy()
    for item in list(tree.find_all(exp.Alias)):
        if item.alias.startswith(ours.ITEM):
            name = (names or {}).get(item.alias)
            if name is None:
                item.replace(item.this)
            else:
                item.set("alias", exp.to_identifier(name, quoted=True))
    return tree


def _unnamed(tree: exp.Expr, definitions: _Definitions) -> Iterator[tuple[exp.Select, int]]:
    """The SELECTs and places of such items."""
    for select in tree.find_all(exp.Select):
        for at, item in enumerate(select.expressions):
            if isinstance(item, exp.Alias | exp.Column) or item.is_star:
                continue
            if item.find(exp.Placeholder) or any(
                macro_called(call, definitions) for call in item.find_all(exp.Anonymous)
            ):
                yield select, at


def _name(select: exp.Select, at: int, source: Source, database: Database) -> str | None:
    """DuckDB's name of an item; None if the SELECT cannot be described by itself."""
    try:
        names = column_names(database, source, select, context_of(select))
    except QueryError:
        return None
    return names[at] if len(names) == len(select.expressions) else None
