"""The keys that tables in FROM declare, as dependencies between the fields of a call.

products(asin PRIMARY KEY, title, price)
LLM('...', asin, title, review)            =>  asin -> title
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from sqlglot import exp

from relquery.sql.host.database import Database
from relquery.sql.plan.fields import Field
from relquery.table.dependencies.dependencies import Dependency

Keys = Callable[[], tuple[Dependency, ...]]
"""Reads keys from the database; most orders of fields need none."""


def declared_keys(
    select: exp.Select, fields: Sequence[Field], entries: Sequence[exp.CTE], database: Database
) -> Keys:
    """What primary keys and UNIQUE constraints say of the other fields of their table, by name.

    entries: the WITH entries that hide tables of their name.
    """
    hidden, merged = {entry.alias.lower() for entry in entries}, _merged(select)
    found: list[tuple[exp.Table, dict[str, str]]] = []
    for table in _tables(select):
        of_table = {
            field.column.lower(): field.name
            for field in fields
            if (field.source or "").lower() == table.alias_or_name.lower()
            or (field.source is None and field.column.lower() in merged)
        }
        if len(of_table) > 1 and (table.db or table.name.lower() not in hidden):
            found.append((table.copy(), of_table))
    return lambda: tuple(one for each in found for one in _dependencies(*each, database))


def _dependencies(
    table: exp.Table, names: dict[str, str], database: Database
) -> Iterator[Dependency]:
    """names: of the fields, by lower-case column."""
    for key in database.keys(table.name, table.db, table.catalog):
        parts = tuple(names.get(column.lower(), "") for column in key)
        others = tuple(name for name in names.values() if name not in parts)
        if all(parts) and others:
            yield Dependency(parts, others)


def _merged(select: exp.Select) -> set[str]:
    """Lower-case names of the columns that USING makes one of those of two tables."""
    joins = select.args.get("joins") or ()
    return {column.name.lower() for join in joins for column in join.args.get("using") or ()}


def _tables(select: exp.Select) -> list[exp.Table]:
    joins = select.args.get("joins") or ()
    sources = [select.args.get("from_"), *joins]
    read = (source.this for source in sources if source is not None)
    return [table for table in read if isinstance(table, exp.Table)]
