"""Tables and columns on the command line: how they are named and read, and what is written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import closing
from math import inf
from pathlib import Path
from typing import Any

import pyarrow as pa

from relquery.cli.terminal import say, to_json
from relquery.demo.files import table_path
from relquery.errors import ConfigError, TableError, UnknownColumnError, did_you_mean
from relquery.report import Report
from relquery.sql.exchange.arrow import distinct_names
from relquery.sql.host.database import Database
from relquery.sql.names import quoted, quoted_text
from relquery.sql.result import Result
from relquery.sql.tables import csv_reader, register

_DEMO = "demo:"


def find_file(name: str) -> Path:
    """The path that a person gave; demo:NAME is a bundled table. Raises TableError."""
    return table_path(name.removeprefix(_DEMO)) if name.startswith(_DEMO) else Path(name)


def find_table(given: str) -> tuple[str, Path]:
    """NAME=FILE, or FILE alone, as a name and a path."""
    name, separator, file = given.partition("=")
    if not separator:
        file, name = given, Path(given.removeprefix(_DEMO)).name.partition(".")[0]
    return name, find_file(file)


def find_tables(given: Sequence[str]) -> dict[str, Path]:
    """Paths of several tables by name. Raises TableError for two of one name."""
    paths: dict[str, Path] = {}
    for name, path in map(find_table, given):
        if name in paths:
            raise TableError(
                f"Two tables are named '{name}': {paths[name]} and {path}. Rename one of them: "
                f"--table other={path}."
            )
        paths[name] = path
    return paths


def check_rate(option: str, value: float) -> None:
    """Whether a number can be a rate or a factor of one. Raises ConfigError."""
    if not 0 < value < inf:
        raise ConfigError(f"{option} is {value}; it must be above 0 and finite.")


def check_output(
    path: Path, endings: Sequence[str] | None, option: str = "--output", *, any_case: bool = False
) -> None:
    """Whether a result can be written there, before it has cost anything. Raises ConfigError.

    endings: one of them is the file's; None for any name.
    """
    if endings is not None and (path.suffix.lower() if any_case else path.suffix) not in (endings):
        raise ConfigError(f"{option} {path} must end in {' or '.join(endings)}.")
    if not path.parent.is_dir():
        raise ConfigError(f"{option} {path}: the folder {path.parent} does not exist.")
    if path.is_dir():
        raise ConfigError(f"{option} {path} is a folder. Give a file name.")
    if path.exists() and not path.is_file():  # a pipe: to open it would wait for its reader
        return
    is_new = not path.exists()
    try:
        path.open("ab").close()  # permissions alone do not tell: the file system may be read-only
    except OSError as error:
        raise ConfigError(f"{option} {path} cannot be written: {error.strerror}.") from error
    if is_new:
        path.unlink()


def read_text(
    path: Path,
    *,
    table: str | None = None,
    columns: Sequence[str] | None = None,
    rows: int | None = None,
) -> pa.Table:
    """A file's values as text. Those of a CSV stay as written, whatever type they look like.

    table: which one of a DuckDB file; None if it has only one. columns, rows: those to keep, the
    first rows.

    Raises TableError, UnknownColumnError, and ConfigError for a `table` of another kind of file.
    """
    with closing(Database.open()) as database:
        register(database, path.name or str(path), path)
        source = _source(database, path, table)
        known = [name for name, _ in database.columns(f"FROM {source}")]
        for name in columns or ():
            if name not in known:
                raise UnknownColumnError(name, path.name, known)
        kept = ", ".join(quoted(name) for name in dict.fromkeys(columns or known))
        limit = "" if rows is None else f" LIMIT {rows}"
        return database.fetch(
            f"SELECT COLUMNS(*)::VARCHAR FROM (SELECT {kept} FROM {source}{limit})"
        )


def _source(database: Database, path: Path, table: str | None) -> str:
    """What to select from."""
    attached = database.fetch("SELECT database_name AS name FROM duckdb_databases()")
    if path.name in attached["name"].to_pylist():
        return _source_in_database(database, path, table)
    if table is not None:
        raise ConfigError(f"--table {table}: {path} has one table. Use it for DuckDB files.")
    if path.name.lower().removesuffix(".gz").removesuffix(".zst").endswith((".csv", ".tsv")):
        return csv_reader(path, "all_varchar = true")
    return quoted(path.name)


def _source_in_database(database: Database, path: Path, table: str | None) -> str:
    rows = database.fetch(
        "SELECT DISTINCT schema_name AS s, table_name AS t FROM duckdb_columns() "
        f"WHERE database_name = {quoted_text(path.name)} AND NOT internal ORDER BY ALL"
    ).to_pylist()
    places = {
        (row["t"] if row["s"] == "main" else f"{row['s']}.{row['t']}"): ".".join(
            map(quoted, (path.name, row["s"], row["t"]))
        )
        for row in rows
    }
    if table in places:
        return places[table]
    if table is None and len(places) == 1:
        return next(iter(places.values()))
    listing = f"Tables: {', '.join(places) or 'none'}."
    if table is None:
        raise TableError(f"{path} has {len(places)} tables. Name one with --table. {listing}")
    raise TableError(f"{path} has no table '{table}'. {listing}" + did_you_mean(table, places))


def rows_of(result: Result) -> list[dict[str, Any]]:
    """A dict per row; names that repeat get a suffix."""
    names = distinct_names(result.columns)
    return [dict(zip(names, row, strict=True)) for row in result.plain()]


def write_json(result: Result, path: Path) -> None:
    """Write all rows to a file."""
    path.write_text(to_json(rows_of(result)), encoding="utf-8")


WRITERS = {".parquet": Result.write_parquet, ".csv": Result.write_csv, ".json": write_json}
"""By the ending of a file's name."""


def check_rows(path: Path, option: str = "--output") -> None:
    """Whether rows can be written there. Raises ConfigError."""
    check_output(path, list(WRITERS), option, any_case=True)


def write_rows(rows: Result | pa.Table, path: Path) -> None:
    """Write rows to a file of one of these kinds."""
    result = rows if isinstance(rows, Result) else Result(rows, (), Report())
    WRITERS[path.suffix.lower()](result, path)


def export(rows: Result | pa.Table, path: Path) -> None:
    """Write rows to a file, and say so."""
    write_rows(rows, path)
    say(f"Wrote {len(rows):,} {'row' if len(rows) == 1 else 'rows'} to {path}.")


def is_same(path: Path, other: Path) -> bool:
    """Whether two paths are of one file."""
    return path.exists() and other.exists() and path.samefile(other)


_NAME = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([^,]*?))\s*(,|\Z)')


def split_names(text: str) -> list[str]:
    """`a, "b, c"` as the names a and b, c.

    A name that holds a comma, an arrow or a space at its end stands in double quotes, in which a
    quote is doubled, as in CSV.
    """
    names, position, comma = [], 0, ","
    while comma:
        match = _NAME.match(text, position)
        assert match is not None  # whatever is between two commas is a name
        inside, plain, comma = match.groups()
        names.append(plain if inside is None else inside.replace('""', '"'))
        position = match.end()
    return names
