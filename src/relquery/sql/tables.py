"""Registration of tables: files, by their extension, and tables of other libraries."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from glob import has_magic
from itertools import islice
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa

from relquery.errors import QueryError, RelqueryError, TableError, unknown
from relquery.sql.exchange.arrow import distinct_names
from relquery.sql.host.database import Database
from relquery.sql.names import quoted, quoted_text

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
FILES = (*_READERS, *_DATABASES, *_COMPRESSED)
"""How the names of files end that can be registered."""
_DELIMITERS = ",;\t|"
_HEAD, _LINES = 1 << 20, 1000  # the header of a CSV file must be in these bytes, and these lines


_FRAMES = {
    "pandas": ("DataFrame",),
    "polars": ("DataFrame", "LazyFrame"),
    "pyarrow": ("Table", "RecordBatch", "RecordBatchReader"),
    "duckdb": ("DuckDBPyRelation",),
    "relquery": ("Result",),
}
"""Classes whose objects are tables, by package."""


def is_frame(value: object) -> bool:
    """Whether a variable's value can be read as a table. Imports no other library."""
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    return kind.__name__ in _FRAMES.get(package, ())


def register(database: Database, name: str, data: object, *, called: str = "") -> None:
    """Make `data` readable as table `name`, which may replace one registered before.

    data: the path of a CSV, TSV, Parquet, JSON or JSONL file (a CSV whose lines do not all have
        as many values as the first is refused), a pattern for several such as "logs/*.parquet", or
        an address that DuckDB reads (https://, s3://, hf://); the path of a DuckDB file, which
        becomes a read-only database `name` whose tables can also be used by their own names; a
        pandas or polars frame; an Arrow table, batch or reader; a Result; a DuckDB relation; a
        dict of columns; a list of dicts.
    Columns whose names differ only in case get a suffix, as SQL cannot tell them apart.
    Raises TableError for anything that cannot be read as a table. called: what it says of the data
        in place of the table's name, which the user may not have given.
    """
    if not isinstance(name, str):
        raise TableError(f"The name of a table is {name!r}; it must be text.")
    if not name.strip():
        raise TableError("The name of the table is empty. Give one, e.g. con.register('t', data).")
    if "\0" in name:
        raise TableError(f"The table name {name!r} contains a zero byte. Remove it.")
    with database.held():
        database.fetch("SELECT 1")  # so a closed connection is not reported as a file error
        if isinstance(data, str | Path):
            if not str(data).strip():
                raise TableError(f"Table '{name}': the path is empty. Give the path of a file.")
            called = called or f"Table '{name}'"
            if "://" in str(data):
                _register_address(database, name, str(data), called)
            else:
                _register_path(database, name, Path(data), called)
        else:
            table = to_arrow(called or f"Table '{name}'", data)
            _check_name(database, name)
            _forget(database, name)
            database.register(name, table.rename_columns(distinct_names(table.column_names)))


def _register_path(database: Database, name: str, path: Path, called: str) -> None:
    """One file, or several that a pattern names."""
    if not path.exists():
        if has_magic(str(path)):
            found = database.fetch(f"SELECT file FROM glob({quoted_text(path)})")
            _register_files(database, name, path, [*map(Path, found[0].to_pylist())], called)
            return
        remedy = "Check the path."
        if str(path).startswith("demo:"):
            remedy = f"In Python, use rq.demo_table('{str(path)[5:]}') for a demo table."
        raise TableError(f"{called}: the file {path} does not exist. {remedy}")
    if path.is_dir():
        raise TableError(
            f"{called}: {path} is a directory. Give one file, or a pattern for several: "
            f"'{path}/*.csv'."
        )
    if _ending(path) in _DATABASES:
        _attach(database, name, path, called)
        return
    _check_ending(path, path.name, called, (*_READERS, *_DATABASES))
    if _READERS[_ending(path)] != "read_parquet" and _is_empty(path):
        raise TableError(
            f"{called}: {path} is empty: it has no line of column names and no rows. Write it anew."
        )
    _register_files(database, name, path, [path], called)


def _register_files(
    database: Database, name: str, path: Path, files: list[Path], called: str
) -> None:
    """Files as one table. path: that of the only one, or a pattern."""
    if not files:
        raise TableError(f"{called}: no file is named like {path}. Check the path.")
    endings = set(map(_ending, files))
    if len(endings) > 1 or not endings <= set(_READERS):
        raise TableError(
            f"{called}: {path} names files that end in {', '.join(sorted(endings))}. All must "
            f"have one of these endings: {', '.join(_READERS)}."
        )
    reader = _READERS[endings.pop()]
    read = f"{reader}({quoted_text(path)})"
    if reader == "read_csv":
        for file in files:
            try:
                _check_csv(database, file)
            except RelqueryError as error:
                which = "" if file == path else f"{file}: "
                raise TableError(f"{called}: {which}{error}") from error
        read = csv_reader(path, like=files[0])
    _replace_view(database, name, read, path, called)


def _register_address(database: Database, name: str, address: str, called: str) -> None:
    path = PurePosixPath(urlsplit(address).path)
    _check_ending(path, address, called, _READERS, " Download any other file first.")
    reader = _READERS[_ending(path)]
    sample = ", sample_size = -1" if reader == "read_csv" else ""
    _replace_view(database, name, f"{reader}({quoted_text(address)}{sample})", address, called)


def _check_ending(
    path: PurePath, written: str, called: str, known: Iterable[str], remedy: str = ""
) -> None:
    if _ending(path) not in known:
        raise TableError(
            f"{called}: the format of '{written}' is unknown. Expected extensions: "
            f"{', '.join(known)}.{remedy}"
        )


def _ending(path: PurePath) -> str:
    """How a name ends, without what says how the file is compressed."""
    endings = [ending.lower() for ending in path.suffixes if ending.lower() not in _COMPRESSED]
    return endings[-1] if endings else ""


def _replace_view(database: Database, name: str, read: str, path: object, called: str) -> None:
    """Make a table of what `read` reads, in place of one of that name."""
    _check_name(database, name)
    view = f"CREATE OR REPLACE TEMP VIEW {quoted(name)} AS SELECT * FROM {read}"
    _define(database, view, path, called)
    _detach(database, name)


def _is_empty(path: Path) -> bool:
    try:
        return not _head(path).strip()
    except (OSError, pa.ArrowException):  # DuckDB will say what is wrong with it
        return False


def csv_reader(path: Path, *options: str, like: Path | None = None) -> str:
    """The SQL that reads a CSV file, for FROM: each line has as many values as the first, with the
    delimiter by which that has the most. options: arguments of `read_csv`. like: the first of
    several files, where the path is a pattern.

    DuckDB would find a dialect that fits more lines: it skips the first ones, or reads each as one
    value.
    """
    first = _first_line(like or path)
    given = ["sample_size = -1", f"skip = {first.blank}"]  # a sample would miss quotes late in it
    given += [f"delim = '{first.delimiter}'"] if len(first.values) > 1 else []
    given += ["quote = '\"'"] if first.has_quotes else []
    return f"read_csv({', '.join((quoted_text(path), *given, *options))})"


def _check_csv(database: Database, path: Path) -> None:
    """Raises TableError, naming the line, unless all lines have as many values as the first."""
    try:
        database.columns(f"FROM {csv_reader(path)}")
    except QueryError:
        _check_lines(database, path)
        raise


class _FirstLine(NamedTuple):
    """The line in which a file's columns are named. blank: the lines before it without content.
    delimiter: the one that splits it into the most values. has_quotes: whether quotes are in the
    file."""

    blank: int
    delimiter: str
    values: list[str]
    has_quotes: bool


def _first_line(path: Path) -> _FirstLine:
    first_lines, head = list[_FirstLine](), ""
    with suppress(OSError, pa.ArrowException):  # DuckDB will say what is wrong with it
        head = _head(path)
    for delimiter in "\t" if ".tsv" in path.name.lower() else _DELIMITERS:
        with suppress(csv.Error):
            lines = list(
                islice(csv.reader(io.StringIO(head, newline=""), delimiter=delimiter), 999)
            )
            blank = next((index for index, line in enumerate(lines) if line), 0)
            said = (line for line in lines if line and not line[0].startswith("#"))
            first_lines.append(_FirstLine(blank, delimiter, next(said, []), '"' in head))
    return max(first_lines, key=lambda one: len(one.values), default=_FirstLine(0, ",", [], False))


def _head(path: Path) -> str:
    with pa.input_stream(path) as file:  # decompresses
        head: bytes = file.read(_HEAD)
    if len(head) == _HEAD:
        head = head[: head.rfind(b"\n") + 1]
    return head.decode("utf-8-sig", "replace")


def _check_lines(database: Database, path: Path) -> None:
    """Raises TableError for the first line whose number of values differs from the first's."""
    first = _first_line(path)
    if not first.values:
        return
    columns = ", ".join(f"'c{index}': 'VARCHAR'" for index in range(len(first.values)))
    database.fetch(
        f"SELECT count(*) FROM read_csv({quoted_text(path)}, auto_detect = false, header = true, "
        f"delim = '{first.delimiter}', columns = {{{columns}}})"
    )


def _define(database: Database, sql: str, path: object, called: str) -> None:
    try:
        database.execute(sql)
    except RelqueryError as error:
        raise TableError(f"{called}: {path} cannot be read: {error}") from error


_ALL_VIEWS = "FROM duckdb_views() WHERE NOT internal"


def unregister(database: Database, name: str) -> None:
    """Take back what `register` made. Raises TableError for another name."""
    with database.held():
        tables = database.tables()
        if name.lower() not in {known.lower() for known in tables}:
            raise TableError(unknown("table", name, tables))
        _check_name(database, name)
        before = database.fetch(_ALL_VIEWS).num_rows, len(database.attached)
        _forget(database, name)
        if before == (database.fetch(_ALL_VIEWS).num_rows, len(database.attached)):
            raise TableError(
                f"'{name}' was not registered: it is in the database. Drop it there: DROP TABLE "
                f"{quoted(name)}."
            )


def _check_name(database: Database, name: str) -> None:
    """Raises TableError for a temporary table of this name, which only its maker may drop."""
    tables = database.fetch(
        "SELECT 1 FROM duckdb_tables() WHERE temporary AND NOT internal "
        f"AND lower(table_name) = lower({quoted_text(name)})"
    )
    if tables.num_rows:
        raise TableError(
            f"There is a temporary table '{name}'. Drop it first (DROP TABLE {quoted(name)}), or "
            "register under another name."
        )


def _forget(database: Database, name: str) -> None:
    """Take back what was registered under a name, or is a temporary view."""
    _detach(database, name)
    _forget_view(database, name)


def _forget_view(database: Database, name: str) -> None:
    database.unregister(name)
    views = database.fetch(
        "SELECT view_name FROM duckdb_views() WHERE temporary AND NOT internal "
        f"AND lower(view_name) = lower({quoted_text(name)})"
    )
    if views.num_rows:
        database.execute(f"DROP VIEW temp.main.{quoted(name)}")


def _detach(database: Database, name: str) -> Path | None:
    """Take back a database file that was registered, and give its path."""
    path, views = database.attached.pop(name.lower(), (None, []))
    if path is not None:
        for view in views:
            if view.lower() != name.lower():
                database.execute(f"DROP VIEW IF EXISTS temp.main.{quoted(view)}")
        database.execute(f"DETACH {quoted(name)}")
    return path


def _attach(database: Database, name: str, path: Path, called: str) -> None:
    before = _detach(database, name)
    try:
        _define(database, f"ATTACH {quoted_text(path)} AS {quoted(name)} (READ_ONLY)", path, called)
    except TableError:
        if before is not None:
            _attach(database, name, before, called)
        raise
    _forget_view(database, name)
    known = {table.lower() for table in database.tables() if "." not in table}
    views: list[str] = []
    tables = database.fetch(
        "SELECT DISTINCT schema_name, table_name FROM duckdb_columns() "
        f"WHERE database_name = {quoted_text(name)} AND NOT internal ORDER BY ALL"
    )
    for row in tables.to_pylist():
        if row["table_name"].lower() in known:
            continue
        path_in_file = ".".join(map(quoted, (name, row["schema_name"], row["table_name"])))
        view = quoted(row["table_name"])
        database.execute(f"CREATE OR REPLACE TEMP VIEW {view} AS SELECT * FROM {path_in_file}")
        views.append(row["table_name"])
    database.attached[name.lower()] = path, views


def to_arrow(called: str, data: object) -> pa.Table:
    """A table of another library as an Arrow table, whose names may repeat. Raises TableError."""
    try:
        table = _arrow_of(data)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise TableError(f"{called} cannot be read as a table: {error}") from error
    if table is None:
        raise TableError(
            f"{called} is of type {type(data).__name__}. Expected a path, a pandas or "
            "polars frame, an Arrow table, a Result, a dict of columns or a list of dicts. Several "
            "files have a pattern, such as 'logs/*.csv'."
        )
    if not table.num_columns:
        raise TableError(f"{called} has no columns. Give at least one.")
    for index, field in enumerate(table.schema):
        if pa.types.is_float16(field.type):  # which DuckDB does not have
            table = table.set_column(index, field.name, _as_single(table.column(index)))
    return table.rename_columns([str(column) for column in table.column_names])


def _as_single(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Half floats as single ones of the same digits."""
    from relquery.reordering.encode import shortest

    numbers = [shortest(number) for number in column.to_pylist()]
    return pa.chunked_array([pa.array(numbers, pa.float32())])


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
        return _of_rows(data)
    convert = _CONVERTERS.get(type(data).__module__.partition(".")[0])
    return convert(data) if convert else None


def _of_rows(rows: Sequence[Mapping[Any, Any]]) -> pa.Table:
    """Columns are all keys in order of appearance; a row without a key has NULL there."""
    names = dict.fromkeys(name for row in rows for name in row)
    columns = [pa.array([row.get(name) for row in rows]) for name in names]
    return pa.Table.from_arrays(columns, names=[str(name) for name in names])


def _of_pandas(data: Any) -> pa.Table | None:
    if not hasattr(data, "columns"):
        return None
    # By position, as names may repeat; the index is not a column.
    columns = [_of_series(data.iloc[:, index]) for index in range(data.shape[1])]
    return pa.Table.from_arrays(columns, names=[str(name) for name in data.columns])


def _of_series(column: Any) -> pa.Array:
    """A column of pandas. Raises TableError for values that have no type together."""
    kind = str(column.dtype).partition("[")[0]
    if kind.startswith("Sparse"):
        column = column.sparse.to_dense()
    elif kind in ("period", "interval", "complex64", "complex128"):  # SQL has none of them
        column = column.astype("str").where(column.notna(), None)
    try:
        return pa.array(column, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        kinds = sorted({type(value).__name__ for value in column.dropna()})
        raise TableError(
            f"Column '{column.name}' has values of {', '.join(kinds[:4])}, which no type of SQL "
            f"has together. Make them text: df[{column.name!r}] = df[{column.name!r}].astype(str)."
        ) from error


def _of_polars(data: Any) -> pa.Table | None:
    frame = data.collect() if hasattr(data, "collect") else data
    table: pa.Table | None = frame.to_arrow() if hasattr(frame, "columns") else None
    return table


def _of_relation(data: Any) -> pa.Table | None:
    if not hasattr(data, "to_arrow_table"):
        return None
    table: pa.Table = data.to_arrow_table()
    return table


def _of_result(data: Any) -> pa.Table | None:
    table = getattr(data, "table", None)
    return table if isinstance(table, pa.Table) else None


# Keyed by the class's module, so nothing has to be imported.
_CONVERTERS: dict[str, Callable[[Any], pa.Table | None]] = {
    "pandas": _of_pandas,
    "polars": _of_polars,
    "duckdb": _of_relation,
    "relquery": _of_result,
}
