"""Registering tables: files by their ending, and the tables of other libraries."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from relquery.errors import RelqueryError, TableError
from relquery.sql.database import Database
from relquery.sql.result import distinct_names

_READERS = {
    ".csv": "read_csv",
    ".tsv": "read_csv",
    ".parquet": "read_parquet",
    ".json": "read_json",
    ".jsonl": "read_json",
    ".ndjson": "read_json",
}
_DATABASES = (".duckdb", ".ddb", ".db")
_COMPRESSED = (".gz", ".zst")


def register(database: Database, name: str, data: object) -> None:
    """Make `data` readable as table `name`, which may replace one registered before.

    data: the path of a CSV, TSV, Parquet, JSON or JSONL file; the path of a DuckDB file, which
        becomes a read-only database `name` whose tables also go by their own names; a pandas or
        polars frame; an Arrow table, batch or reader; a dict of columns; a list of dicts.
    Columns whose names differ in nothing but case get a suffix, as SQL cannot tell them apart.

    Raises TableError for what cannot be read as a table.
    """
    if not name.strip():
        raise TableError("The name of the table is empty. Give one, e.g. con.register('t', data).")
    if "\0" in name:
        raise TableError(f"The table name {name!r} holds a zero byte. Leave it out.")
    with database.held():
        database.fetch("SELECT 1")  # that the connection is closed is no fault of the file
        if isinstance(data, str | Path):
            if not str(data).strip():
                raise TableError(f"Table '{name}': the path is empty. Give that of a file.")
            _register_path(database, name, Path(data))
        else:
            database.register(name, _to_arrow(name, data))


def _register_path(database: Database, name: str, path: Path) -> None:
    if not path.exists():
        raise TableError(f"Table '{name}': the file {path} does not exist. Check the path.")
    if path.is_dir():
        raise TableError(
            f"Table '{name}': {path} is a directory. Give one file, or read them all in SQL: "
            f"SELECT * FROM '{path}/*.csv'."
        )
    endings = [ending.lower() for ending in path.suffixes if ending.lower() not in _COMPRESSED]
    ending = endings[-1] if endings else ""
    if ending in _DATABASES:
        _attach(database, name, path)
        return
    if ending not in _READERS:
        known = ", ".join((*_READERS, *_DATABASES))
        raise TableError(
            f"Table '{name}': '{path.name}' has no ending that tells its format. Endings: {known}."
        )
    read = f"CREATE OR REPLACE TEMP VIEW {quoted(name)} AS SELECT * FROM {_READERS[ending]}"
    if _READERS[ending] == "read_csv":  # a sample would miss quotes that come late
        with contextlib.suppress(TableError):  # read by a sample, the query names the bad line
            _define(database, f"{read}({_text(str(path))}, sample_size = -1)", name, path)
            return
    _define(database, f"{read}({_text(str(path))})", name, path)


def _define(database: Database, sql: str, name: str, path: Path) -> None:
    try:
        database.execute(sql)
    except RelqueryError as error:
        raise TableError(f"Table '{name}': {path} cannot be read: {error}") from error


def _attach(database: Database, name: str, path: Path) -> None:
    known = {table.lower() for table in database.tables()}
    _define(database, f"ATTACH {_text(str(path))} AS {quoted(name)} (READ_ONLY)", name, path)
    tables = database.fetch(
        "SELECT DISTINCT schema_name, table_name FROM duckdb_columns() "
        f"WHERE database_name = {_text(name)} AND NOT internal ORDER BY ALL"
    )
    for row in tables.to_pylist():
        if row["table_name"].lower() in known:
            continue
        path_in_file = ".".join(map(quoted, (name, row["schema_name"], row["table_name"])))
        view = quoted(row["table_name"])
        database.execute(f"CREATE OR REPLACE TEMP VIEW {view} AS SELECT * FROM {path_in_file}")


def _to_arrow(name: str, data: object) -> pa.Table:
    try:
        table = _arrow_of(data)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise TableError(f"Table '{name}' cannot be read as a table: {error}") from error
    if table is None:
        raise TableError(
            f"Table '{name}' is given as {type(data).__name__}. Expected a path, a pandas or "
            "polars frame, an Arrow table, a dict of columns or a list of dicts."
        )
    if not table.num_columns:
        raise TableError(f"Table '{name}' has no columns. Give at least one.")
    return table.rename_columns(distinct_names([str(column) for column in table.column_names]))


def _arrow_of(data: object) -> pa.Table | None:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, pa.RecordBatchReader):
        return data.read_all()
    if isinstance(data, Mapping):
        return pa.table(dict(data))
    if isinstance(data, Sequence) and all(isinstance(row, Mapping) for row in data):
        return pa.Table.from_pylist([dict(row) for row in data])
    convert = _FRAMES.get(type(data).__module__.partition(".")[0])
    return convert(data) if convert else None


def _of_pandas(data: Any) -> pa.Table | None:
    if not hasattr(data, "columns"):
        return None
    # By position, as names may repeat; the index is no column.
    columns = [pa.array(data.iloc[:, at], from_pandas=True) for at in range(data.shape[1])]
    return pa.Table.from_arrays(columns, names=[str(name) for name in data.columns])


def _of_polars(data: Any) -> pa.Table | None:
    frame = data.collect() if hasattr(data, "collect") else data
    table: pa.Table | None = frame.to_arrow() if hasattr(frame, "columns") else None
    return table


# By the module that a class comes from, so that nothing is imported for it.
_FRAMES: dict[str, Callable[[Any], pa.Table | None]] = {"pandas": _of_pandas, "polars": _of_polars}


def quoted(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
