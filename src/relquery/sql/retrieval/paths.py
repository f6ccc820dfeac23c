"""The table that a text names, by its name or by a path, as DuckDB reads it.

docs, schema.docs, database.docs, database.schema.docs; a name with dots needs no quotes
"""

from __future__ import annotations

import re
from typing import NamedTuple

from relquery.sql import names as ours
from relquery.sql.exchange.export import quoted
from relquery.sql.host.database import Database

_PART = r'"(?:[^"]|"")+"|[^".]+'
_PATH = re.compile(rf"(?:{_PART})(?:\.(?:{_PART})){{0,2}}")


class _Known(NamedTuple):
    """A table or view, in lower case. is_own: whether its database need not be named."""

    database: str
    schema: str
    name: str
    is_own: bool
    is_default: bool
    """Whether its schema need not be named."""

    def has(self, path: list[str]) -> bool:
        """Whether a path leads to it."""
        if path[-1] != self.name:
            return False
        match path[:-1]:
            case []:
                return self.is_own and self.is_default
            case [schema] if self.is_own and schema == self.schema:
                return True
            case [database]:
                return database == self.database and self.schema == "main"
        return path[:-1] == [self.database, self.schema]


def find_table(written: str, database: Database) -> str | None:
    """SQL of the table or view that a text names; None if there is none."""
    known = _known(database)
    for path in ([written], _parts(written)):
        lower = [part.lower() for part in path]
        if path and any(one.has(lower) for one in known):
            return ".".join(map(quoted, path))
    return None


def _parts(written: str) -> list[str]:
    """The parts of a path, without their quotes; none if it is not a path."""
    if not _PATH.fullmatch(written):
        return []
    parts = re.findall(_PART, written)
    return [part[1:-1].replace('""', '"') if part[0] == '"' else part for part in parts]


def _known(database: Database) -> list[_Known]:
    rows = database.fetch(
        "SELECT lower(database_name), lower(schema_name), lower(name), "
        "database_name IN (current_database(), 'temp'), "
        "schema_name IN ('main', current_schema()) FROM ("
        "SELECT database_name, schema_name, table_name AS name, internal FROM duckdb_tables() "
        "UNION ALL SELECT database_name, schema_name, view_name, internal FROM duckdb_views()) "
        f"WHERE NOT internal AND NOT starts_with(name, '{ours.PREFIX}')"
    )
    return list(map(_Known, *(column.to_pylist() for column in rows.columns)))
