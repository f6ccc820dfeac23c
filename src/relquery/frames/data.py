"""Where the rows of a frame come from, and the form in which it gives them back.

From data of another library, a file, or a table by its name; back to the library of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
class Source:
    """A table of a connection. index, dtypes: of a pandas frame, when the frame was made."""

    connection: Connection
    table: str | Lent
    library: Library
    index: Any = None
    dtypes: Mapping[str, Any] = field(default_factory=dict)

    def register(self) -> str:
        """The table in SQL; what is not in the connection yet is registered."""
        if isinstance(self.table, str):
            return self.table
        lent = self.connection.lent
        return quoted(lent.register(self.table, self.connection.database))


def read_source(data: object, connection: Connection) -> tuple[Source, tuple[str, ...]]:
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
        return Source(connection, connection.lent.lend(data, None), library), names
    rows: Any = data
    index, dtypes = None, {}
    if library == "pandas":  # Arrow would share its numbers, which the user may change
        rows, index = rows.copy(), rows.index
        dtypes = dict(zip(map(str, rows.columns), rows.dtypes, strict=True))
    table = export(rows) if library == "duckdb" else to_arrow("The data of rq.frame", rows)
    names = _checked(table.column_names)
    lent = connection.lent.lend(data, table)
    return Source(connection, lent, library, index, dtypes), names


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


def _named(name: str, connection: Connection) -> tuple[Source, tuple[str, ...]]:
    tables = {path.lower(): columns for path, columns in connection.tables().items()}
    sql, path = _path(name)
    columns = tables.get(path.lower()) or tables.get(path.lower().removeprefix("main."))
    if columns is None:
        raise UnknownTableError(name, connection.tables().keys() - connection.lent.names())
    return Source(connection, sql, "relquery"), tuple(columns)


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


def _file(path: Path, connection: Connection) -> tuple[Source, tuple[str, ...]]:
    if path.suffix.lower() in (".duckdb", ".ddb", ".db") and path.exists():
        raise TableError(
            f"{path} is a database, which may have several tables. Register it, and name one: "
            f"con.register('d', '{path}'); rq.frame('d.table', con)."
        )
    source = Source(connection, connection.lent.lend(path.absolute(), None), "relquery")
    columns = connection.database.columns(f"SELECT * FROM {source.register()}")
    return source, tuple(name for name, _ in columns)


def _library(data: object) -> Library:
    package = type(data).__module__.partition(".")[0].removeprefix("_")
    if package in ("pandas", "polars", "duckdb"):
        return package  # type: ignore[return-value]
    if isinstance(data, list | tuple):
        return "rows"
    return "columns" if isinstance(data, dict) else "arrow"


def give_back(result: Result, source: Source) -> Any:
    """The rows as the library of the source has them; see Frame.collect."""
    return _FORMS[source.library](result)


def with_index(frame: Any, numbers: pa.ChunkedArray, source: Source) -> Any:
    """A pandas frame whose rows have the index of those of the input with these numbers."""
    frame.index = source.index.take(numbers.to_numpy())
    return frame


def with_dtypes(frame: Any, dtypes: Mapping[str, Any]) -> Any:
    """A pandas frame whose columns have the dtypes of the input, where they hold the same values.

    A frame of relquery has what SQL and Arrow make of them: a categorical comes back as text.
    """
    for name, dtype in dtypes.items():
        column = frame[name]
        if column.dtype != dtype and (before := _as_before(column, dtype)) is not None:
            frame[name] = before
    return frame


def _as_before(column: Any, dtype: Any) -> Any:
    """A column with another dtype; None if pandas cannot convert it and back without a loss."""
    if dtype == "object" and column.dtype != "str":  # what else its values were is not known
        return None
    known = column.notna()
    try:
        cast = column.astype(dtype)
        if dtype == "object":
            cast[~known] = None
        again = cast[known].astype(column.dtype)
    except (TypeError, ValueError, ArithmeticError, NotImplementedError):
        return None  # of pandas; numbers that overflow, also decimal ones; types Arrow cannot cast
    return cast if cast.notna().equals(known) and again.equals(column[known]) else None


def _rows(result: Result) -> list[dict[str, Any]]:
    return [dict(zip(result.columns, row, strict=True)) for row in result]


def _columns(result: Result) -> dict[str, list[Any]]:
    rows = result.fetchall()
    return {name: [row[at] for row in rows] for at, name in enumerate(result.columns)}


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
