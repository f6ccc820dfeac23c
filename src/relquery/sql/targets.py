"""Checks what a statement writes to before its calls are paid for.

DuckDB reports an existing table or a missing folder only after it has computed all rows.
"""

from __future__ import annotations

from pathlib import Path

from relquery.errors import QueryError
from relquery.sql.binder.bind import Bound
from relquery.sql.host.database import Database
from relquery.sql.names import quoted_text
from relquery.sql.parser import build
from relquery.sql.parser.parse import parser
from relquery.sql.parser.shell import Shell


def check_target(shell: Shell, database: Database) -> None:
    """Raises QueryError if a table to create exists, or if a file's folder does not exist."""
    if shell.kind == "CREATE TABLE" and not shell.if_not_exists and _is_there(shell, database):
        name = shell.target
        raise QueryError(
            f"The table {name} already exists. Write CREATE OR REPLACE TABLE {name} to replace "
            "it, or use another name."
        )
    if shell.file is not None and "://" not in shell.file:
        folder = Path(shell.file).expanduser().parent
        if not folder.is_dir():
            raise QueryError(
                f"{shell.file} cannot be written: the folder {folder} does not exist. Create it "
                "first."
            )


def has_nothing_to_do(shell: Shell, database: Database) -> bool:
    """Whether a statement creates a table IF NOT EXISTS, and the table exists."""
    return shell.if_not_exists and _is_there(shell, database)


def with_nulls(bound: Bound) -> str:
    """A query for one row of NULLs with the columns of a statement's query."""
    nulls = [
        build.cast(build.null(), parser().type(kind)).named(name) for name, kind in bound.columns
    ]
    return parser().sql(build.select(nulls))


def _is_there(shell: Shell, database: Database) -> bool:
    """Whether a table or view with this name exists and the statement does not replace it."""
    if shell.replaces:
        return False
    *before, name = map(quoted_text, shell.path)
    places = [("current_database()", "current_schema()")]
    if shell.temporary:
        places = [("'temp'", "'main'")]
    elif len(before) > 1:
        places = [(before[0], before[1])]
    elif before:  # `a` in `a.t` is a schema or another database
        places = [("current_database()", before[0]), (before[0], "'main'")]
    named = " OR ".join(
        f"(lower(database_name) = lower({of}) AND lower(schema_name) = lower({schema}))"
        for of, schema in places
    )
    found = database.fetch(
        "SELECT 1 FROM (SELECT database_name, schema_name, table_name AS name FROM duckdb_tables() "
        "UNION ALL SELECT database_name, schema_name, view_name FROM duckdb_views()) "
        f"WHERE lower(name) = lower({name}) AND ({named})"
    )
    return bool(found.num_rows)
