"""Checks what a statement writes to before its calls are paid for.

Errors that DuckDB finds when it binds a statement (see sql.read.check) are not checked here. DuckDB
reports an existing table or a missing folder only after it has computed all rows.
"""

from __future__ import annotations

from pathlib import Path

from sqlglot import exp

from relquery.errors import QueryError
from relquery.sql.host.database import Database


def check_target(database: Database, tree: exp.Expr) -> None:
    """Raises QueryError if a table to create exists, or if a file's folder does not exist."""
    if isinstance(tree, exp.Create) and not tree.args.get("exists") and _is_there(database, tree):
        name = tree.this.sql(dialect="duckdb")
        raise QueryError(
            f"The table {name} already exists. Write CREATE OR REPLACE TABLE {name} to replace "
            "it, or use another name."
        )
    if isinstance(tree, exp.Copy):
        for file in tree.args.get("files") or ():
            _check_folder(file)


def has_nothing_to_do(database: Database, tree: exp.Expr) -> bool:
    """Whether a statement creates a table IF NOT EXISTS, and the table exists."""
    return (
        isinstance(tree, exp.Create) and bool(tree.args.get("exists")) and _is_there(database, tree)
    )


def take_data_clause(tree: exp.Expr) -> bool:
    """Remove WITH [NO] DATA from a statement. Returns whether the table gets the rows."""
    properties = tree.args.get("properties")
    clause = properties.find(exp.WithDataProperty) if properties is not None else None
    if clause is None:
        return True
    clause.pop()
    return not clause.args.get("no")


def _is_there(database: Database, tree: exp.Create) -> bool:
    """Whether a table or view with this name exists and the statement does not replace it."""
    table = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    if tree.args.get("replace") or not isinstance(table, exp.Table):
        return False
    properties = tree.args.get("properties")
    is_temporary = properties is not None and properties.find(exp.TemporaryProperty) is not None
    here = ("'temp'", "'main'") if is_temporary else ("current_database()", "current_schema()")
    places = [(_text(table.catalog) if table.catalog else here[0], _text(table.db))]
    if not table.db:
        places = [here]
    elif not table.catalog:  # `a` in `a.t` is a schema or another database
        places.append((_text(table.db), "'main'"))
    named = " OR ".join(
        f"(lower(database_name) = lower({of}) AND lower(schema_name) = lower({schema}))"
        for of, schema in places
    )
    found = database.fetch(
        "SELECT 1 FROM (SELECT database_name, schema_name, table_name AS name FROM duckdb_tables() "
        "UNION ALL SELECT database_name, schema_name, view_name FROM duckdb_views()) "
        f"WHERE lower(name) = lower({_text(table.name)}) AND ({named})"
    )
    return bool(found.num_rows)


def _check_folder(file: exp.Expr) -> None:
    if not isinstance(file, exp.Literal) or not file.is_string or "://" in file.this:
        return
    folder = Path(file.this).expanduser().parent
    if not folder.is_dir():
        raise QueryError(
            f"{file.this} cannot be written: the folder {folder} does not exist. Create it first."
        )


def _text(name: str) -> str:
    return exp.Literal.string(name).sql(dialect="duckdb")
