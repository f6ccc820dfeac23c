"""The keys that tables in FROM declare, as dependencies between the fields of a call.

products(asin PRIMARY KEY, title, price)
LLM('...', asin, title, review)            =>  asin -> title
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from relquery.sql.host.database import Database
from relquery.sql.plan.fields import Field
from relquery.table.dependencies.dependencies import Dependency


def declared_keys(
    select: exp.Select, fields: Sequence[Field], entries: Sequence[exp.CTE], database: Database
) -> tuple[Dependency, ...]:
    """What a primary key or UNIQUE says of the other fields of its table, by names of fields.

    entries: the WITH entries that hide tables of their name.
    """
    hidden, merged = {entry.alias.lower() for entry in entries}, _merged(select)
    found = []
    for table in _tables(select):
        of_table = {
            field.column.lower(): field.name
            for field in fields
            if (field.source or "").lower() == table.alias_or_name.lower()
            or (field.source is None and field.column.lower() in merged)
        }
        if len(of_table) < 2 or (not table.db and table.name.lower() in hidden):
            continue
        for key in database.keys(table.name, table.db, table.catalog):
            names = tuple(of_table.get(column.lower(), "") for column in key)
            others = tuple(name for name in of_table.values() if name not in names)
            if all(names) and others:
                found.append(Dependency(names, others))
    return tuple(found)


def _merged(select: exp.Select) -> set[str]:
    """Lower-case names of the columns that USING makes one of those of two tables."""
    joins = select.args.get("joins") or ()
    return {column.name.lower() for join in joins for column in join.args.get("using") or ()}


def _tables(select: exp.Select) -> list[exp.Table]:
    joins = select.args.get("joins") or ()
    sources = [select.args.get("from_"), *joins]
    read = (source.this for source in sources if source is not None)
    return [table for table in read if isinstance(table, exp.Table)]
