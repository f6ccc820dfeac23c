"""Checks an INSERT before its calls are paid for: constraints that its rows must break."""

from __future__ import annotations

from dataclasses import dataclass

from relquery.errors import QueryError
from relquery.sql import names as ours
from relquery.sql.host.database import Database
from relquery.sql.parser.shell import Shell


def check_insert(shell: Shell, query: str, database: Database) -> None:
    """Raises QueryError for rows that the table cannot accept. query: gives the rows."""
    columns = database.columns(f"SELECT * FROM {shell.target}")
    given = [name for name, _ in database.columns(query)]
    names = list(shell.columns) or [name for name, _ in columns]
    if shell.by_name:
        names = given
    if len(names) != len(given):
        return
    types = {name.lower(): kind for name, kind in columns}
    if not all(name.lower() in types for name in names):
        return
    listing = ", ".join(f"c{at}" for at in range(len(given)))
    items = ", ".join(
        f"CAST(c{at} AS {types[name.lower()]}) AS {_quoted(name)}" for at, name in enumerate(names)
    )
    source = f"SELECT {items} FROM ({query}) AS {ours.ROWS}({listing})"
    database.execute(f"EXPLAIN ANALYZE {source}")
    replaces = "CONFLICT" in shell.tail.upper() or " OR " in f" {shell.head.upper()} "
    lower = {name.lower() for name in names}
    for constraint in _constraints(database, shell.path):
        if set(map(str.lower, constraint.columns)) <= lower:
            constraint.check(database, source, shell.target, replaces)


@dataclass(frozen=True, slots=True)
class _Constraint:
    """kind: DuckDB's name for it. text: as in CREATE TABLE. expression: condition of a CHECK."""

    kind: str
    columns: list[str]
    text: str
    expression: str | None

    def check(self, database: Database, source: str, table: str, replaces: bool) -> None:
        """Raises QueryError if rows of `source` violate the constraint."""
        for query in self._breaches(source, table, replaces):
            found = database.fetch(f"{query} LIMIT 1")
            if found.num_rows:
                row = ", ".join(f"{name} = {found[name][0].as_py()!r}" for name in self.columns)
                what = self.text if self.kind != "NOT NULL" else f"NOT NULL of {self.columns[0]}"
                raise QueryError(f"{table} rejects the rows: {row} violates {what}.")

    def _breaches(self, source: str, table: str, replaces: bool) -> list[str]:
        names = ", ".join(map(_quoted, self.columns))
        rows = f"SELECT {names} FROM ({source})"
        if self.kind == "NOT NULL":
            return [f"{rows} WHERE {names} IS NULL"]
        if self.kind == "CHECK":
            return [f"{rows} WHERE NOT ({self.expression})"]
        if self.kind in ("PRIMARY KEY", "UNIQUE") and not replaces:
            whole = " AND ".join(f"{_quoted(name)} IS NOT NULL" for name in self.columns)
            return [
                f"{rows} WHERE {whole} GROUP BY ALL HAVING count(*) > 1",
                f"{rows} SEMI JOIN (SELECT {names} FROM {table}) USING ({names})",
            ]
        return []


def _constraints(database: Database, path: tuple[str, ...]) -> list[_Constraint]:
    *before, name = (part.replace("'", "''") for part in path)
    where = f"lower(table_name) = lower('{name}')"
    if before:
        where += f" AND lower('{before[-1]}') IN (lower(schema_name), lower(database_name))"
    else:
        where += " AND schema_name = current_schema() AND database_name = current_database()"
    found = database.fetch(
        "SELECT constraint_type, constraint_column_names, constraint_text, expression "
        f"FROM duckdb_constraints() WHERE {where}"
    )
    return [_Constraint(*row.values()) for row in found.to_pylist()]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
