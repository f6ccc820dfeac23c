"""Sources of a frame's rows, and the form in which it gives them back.

From data of another library, a file, or a table by its name; back to the library of the data, where
columns that no verb has changed are those of the data, so that they keep types that SQL lacks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from relquery.connection import Connection
from relquery.errors import TableError, UnknownTableError
from relquery.sql.exchange.arrow import to_arrow as export
from relquery.sql.names import quoted
from relquery.sql.parser.tokens import read_path, tokenize
from relquery.sql.result import Result
from relquery.sql.tables import FILES, to_arrow
from relquery.sql.temp_tables import Lent

Library = Literal["pandas", "polars", "arrow", "duckdb", "rows", "columns", "relquery"]
"""What a frame gives back: "rows" are a list of dicts, "columns" a dict of lists."""


@dataclass(frozen=True, slots=True, eq=False)
class FrameSource:
    """A table of a connection."""

    connection: Connection
    table: str | Lent
    library: Library
    data: Any = None
    """A pandas or polars frame or an Arrow table as it was when the frame was made; else None."""

    def register(self) -> str:
        """The table in SQL; what is not in the connection yet is registered."""
        if isinstance(self.table, str):
            return self.table
        lent = self.connection.lent
        return quoted(lent.register(self.table, self.connection.database))

    def column(self, name: str, rows: pa.ChunkedArray) -> Any:
        """The values of a column in some rows, by number; missing where there is no number."""
        if self.library == "arrow":
            return _taken(self.data.column(name), rows)
        if self.library == "polars":
            import polars

            assert isinstance(self.table, Lent)
            data = self.table.collected if self.data is None else self.data
            return data.get_column(name).gather(polars.from_arrow(rows))
        place = [str(label) for label in self.data.columns].index(name)
        column = self.data.iloc[:, place].reset_index(drop=True)
        return column.reindex(rows.fill_null(-1).to_numpy())


def _taken(column: pa.ChunkedArray, rows: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values in some rows, also of types that Arrow cannot take from, such as string views."""
    try:
        return column.take(rows)
    except pa.ArrowNotImplementedError:
        values = column.to_pylist()
        values_of_rows = [None if row is None else values[row] for row in rows.to_pylist()]
        return pa.chunked_array([pa.array(values_of_rows, column.type)])


def read_source(data: object, connection: Connection) -> tuple[FrameSource, tuple[str, ...]]:
    """The source of a frame, and the names of its columns.

    data: what `Connection.register` takes, except DuckDB files; a relation of DuckDB; or the name
        of a table or view of the connection. Raises TableError and UnknownTableError.
    """
    if isinstance(data, str) and not _is_file(data, connection):
        return _named(data, connection)
    if isinstance(data, str | Path):
        return _file(Path(data), connection)
    _check_table(data)
    library = _library(data)
    if library == "polars" and hasattr(data, "collect_schema") and hasattr(data, "collect"):
        names = _checked(list(data.collect_schema().names()))
        return FrameSource(connection, connection.lent.lend(data, None), library), names
    rows: Any = data
    if library == "pandas":  # Arrow would share its numbers, which the user may change
        rows = rows.copy()
    table = export(rows) if library == "duckdb" else to_arrow("The data of rq.frame", rows)
    names = _checked(table.column_names)
    lent = connection.lent.lend(data, table)
    kept = {"pandas": rows, "polars": rows, "arrow": table}.get(library)
    return FrameSource(connection, lent, library, kept), names


def _check_table(data: object) -> None:
    """Raises TableError for a Series of pandas or polars."""
    if type(data).__name__ == "Series" and _library(data) in ("pandas", "polars"):
        name = getattr(data, "name", None) or "column"
        raise TableError(
            f"rq.frame was given a Series. A Series is one column; write df[[{name!r}]]."
        )


def _checked(names: list[str]) -> tuple[str, ...]:
    """The same. Raises TableError for two that SQL could not tell apart, and for an empty one."""
    first: dict[str, str] = {}
    for place, name in enumerate(names, 1):
        if not name:
            raise TableError(f"Column {place} has an empty name, which SQL cannot say. Rename it.")
        if (other := first.setdefault(name.lower(), name)) != name or names.count(name) > 1:
            raise TableError(
                f"Two columns are called {other!r} and {name!r}, which SQL cannot tell apart, as "
                "it ignores case. Rename one of them first."
            )
    return tuple(names)


def _named(name: str, connection: Connection) -> tuple[FrameSource, tuple[str, ...]]:
    tables = {path.lower(): columns for path, columns in connection.tables().items()}
    sql, path = _path(name)
    columns = tables.get(path.lower()) or tables.get(path.lower().removeprefix("main."))
    if columns is None:
        raise UnknownTableError(name, connection.tables().keys() - connection.lent.names())
    return FrameSource(connection, sql, "relquery"), tuple(columns)


def _path(name: str) -> tuple[str, str]:
    """SQL of a table's name, and its parts with points between."""
    tokens = tokenize(name)
    names, end = read_path(tokens, 0)
    if end < len(tokens) or not all(token.is_name or token.text == "." for token in tokens):
        return quoted(name), name
    return ".".join(map(quoted, names)), ".".join(names)


def _is_file(name: str, connection: Connection) -> bool:
    """Whether a text is meant as the path of a file, and not as the name of a table."""
    is_table = name.lower() in map(str.lower, connection.tables())
    looks_so = "/" in name or name.lower().endswith(FILES)
    return not is_table and (looks_so or (Path(name).suffix != "" and Path(name).is_file()))


def _file(path: Path, connection: Connection) -> tuple[FrameSource, tuple[str, ...]]:
    if path.suffix.lower() in (".duckdb", ".ddb", ".db") and path.exists():
        raise TableError(
            f"{path} is a database, which may have several tables. Register it, and name one: "
            f"con.register('d', '{path}'); rq.frame('d.table', con)."
        )
    source = FrameSource(connection, connection.lent.lend(path.absolute(), None), "relquery")
    columns = connection.database.columns(f"SELECT * FROM {source.register()}")
    return source, tuple(name for name, _ in columns)


def _library(data: object) -> Library:
    package = type(data).__module__.partition(".")[0].removeprefix("_")
    if package in ("pandas", "polars", "duckdb"):
        return package  # type: ignore[return-value]
    if isinstance(data, list | tuple):
        return "rows"
    return "columns" if isinstance(data, dict) else "arrow"


KEEPS_TYPES: frozenset[Library] = frozenset(("pandas", "polars", "arrow"))
"""Libraries whose data have types that SQL lacks."""


def in_form(result: Result, library: Library) -> Any:
    """The rows in the form of a library, in the types that SQL has."""
    return _FORMS[library](result)


def with_column(table: Any, at: int, values: Any) -> Any:
    """A table of a library with other values in a column, of which it has as many."""
    if isinstance(table, pa.Table):
        return table.set_column(at, table.field(at).name, values)
    name = table.columns[at]
    if hasattr(table, "isetitem"):  # of pandas
        table.isetitem(at, values.set_axis(table.index))
        return table
    return table.with_columns(values.alias(name))


def _rows(result: Result) -> list[dict[str, Any]]:
    return [dict(zip(result.columns, row, strict=True)) for row in result]


def _columns(result: Result) -> dict[str, list[Any]]:
    rows = result.fetchall()
    return {name: [row[index] for row in rows] for index, name in enumerate(result.columns)}


def _relation(result: Result) -> Any:
    import duckdb

    return duckdb.from_arrow(result.arrow())


_FORMS: dict[Library, Callable[[Result], Any]] = {
    "pandas": Result.df,
    "polars": Result.pl,
    "arrow": Result.arrow,
    "duckdb": _relation,
    "rows": _rows,
    "columns": _columns,
    "relquery": lambda result: result,
}
