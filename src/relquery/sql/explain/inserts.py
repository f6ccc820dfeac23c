"""Checks an INSERT before its calls are paid for: casts and constraints that must fail."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from relquery.errors import QueryError
from relquery.sql import names as ours
from relquery.sql.explain.bounds import Known
from relquery.sql.host.database import Database
from relquery.sql.read.source import DIALECT, to_sql
from relquery.sql.read.tokens import parse


def check_insert(database: Database, statement: str, known: dict[str, Known]) -> None:
    """Raises QueryError for rows that the table cannot accept, whatever the answers are.

    statement: with stand-ins for the tables that contain answers. known: what is known about them.
    """
    tree = parse(statement)
    query = tree.args.get("expression")
    if not isinstance(tree, exp.Insert) or not isinstance(query, exp.Select):
        return
    rows = _known_of(query, known)
    if rows is None or not (rows.exact and rows.held):
        return
    table = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    given = [name for name, _ in database.describe(to_sql(query))]
    columns = database.describe(f"SELECT * FROM {to_sql(table)}")
    names = _target_names(tree, given, [name for name, _ in columns])
    if names is None:
        return
    types = {name.lower(): kind for name, kind in columns}
    sure = [
        f"CAST(c{at} AS {types[name.lower()]}) AS {_quoted(name)}"
        for at, name in enumerate(names)
        if not rows.is_open_column(given[at]) and name.lower() in types
    ]
    if not sure:
        return
    listing = ", ".join(f"c{at}" for at in range(len(given)))
    source = f"SELECT {', '.join(sure)} FROM ({to_sql(query)}) AS {ours.ROWS}({listing})"
    database.execute(f"EXPLAIN ANALYZE {source}")
    known_names = {
        name.lower() for at, name in enumerate(names) if not rows.is_open_column(given[at])
    }
    replaces = bool(tree.args.get("conflict") or tree.args.get("alternative"))
    for constraint in _constraints(database, table):
        if set(map(str.lower, constraint.columns)) <= known_names:
            constraint.check(database, source, to_sql(table), replaces)


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


def _known_of(query: exp.Select, known: dict[str, Known]) -> Known | None:
    """What is known about the rows of `SELECT ... FROM stand-in`, with its own column names."""
    source = query.args.get("from_")
    is_whole = {key for key, arg in query.args.items() if arg} == {"expressions", "from_"}
    return known.get(source.this.name) if source is not None and is_whole else None


def _target_names(tree: exp.Insert, given: list[str], all_names: list[str]) -> list[str] | None:
    """For each given column, the table column that it is written to; None if unknown."""
    if tree.args.get("by_name"):
        return given
    names = all_names
    if isinstance(tree.this, exp.Schema):
        names = [part.name for part in tree.this.expressions]
    return names if len(names) == len(given) else None


def _constraints(database: Database, table: exp.Table) -> list[_Constraint]:
    name, schema = (exp.Literal.string(part).sql(DIALECT) for part in (table.name, table.db))
    where = f"lower(table_name) = lower({name})"
    if table.db:
        where += f" AND lower({schema}) IN (lower(schema_name), lower(database_name))"
    else:
        where += " AND schema_name = current_schema() AND database_name = current_database()"
    found = database.fetch(
        "SELECT constraint_type, constraint_column_names, constraint_text, expression "
        f"FROM duckdb_constraints() WHERE {where}"
    )
    return [_Constraint(*row.values()) for row in found.to_pylist()]


def _quoted(name: str) -> str:
    return str(exp.to_identifier(name, quoted=True).sql(DIALECT))
