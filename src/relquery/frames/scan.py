"""A frame as a polars LazyFrame: the model is asked when polars collects it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from relquery.connection import Connection
from relquery.errors import MissingExtraError, TableError
from relquery.sql.exchange.forms import for_polars
from relquery.sql.names import quoted

if TYPE_CHECKING:
    import polars as pl

Read = Callable[[Sequence[str] | None, int | None], "pl.DataFrame"]
"""Gives some columns of the first rows; None for all of them."""


def scan(sql: str, connection: Connection, read: Read) -> pl.LazyFrame:
    """A LazyFrame with the columns of a query, whose rows are read when it is collected.

    Reading only some columns or the first rows asks only what these need. Raises QueryError.
    """
    try:
        from polars.io.plugins import register_io_source
    except ImportError as error:
        raise MissingExtraError("pl(lazy=True)", "polars") from error
    empty = _empty(sql, connection)

    def rows(
        columns: list[str] | None, condition: pl.Expr | None, limit: int | None, _: int | None
    ) -> Iterator[pl.DataFrame]:
        read_by = [] if condition is None else condition.meta.root_names()
        needed = [name for name in empty.columns if name in {*(columns or ()), *read_by}]
        frame = _checked(read(needed if columns is not None and needed else None, limit), empty)
        frame = frame if condition is None else frame.filter(condition)
        yield frame if columns is None else frame.select(columns)

    return register_io_source(rows, schema=empty.schema)


def _empty(sql: str, connection: Connection) -> pl.DataFrame:
    """The result of a query without its rows. Makes no call."""
    import polars as pl

    described = connection.sql(f"DESCRIBE {sql}").fetchall()
    nulls = ", ".join(f"CAST(NULL AS {kind}) AS {quoted(name)}" for name, kind, *_ in described)
    table = connection.database.result(f"SELECT {nulls} LIMIT 0")
    frame = pl.from_arrow(for_polars(table, table.column_names))
    assert isinstance(frame, pl.DataFrame)
    return frame


def _checked(frame: pl.DataFrame, empty: pl.DataFrame) -> pl.DataFrame:
    """The same. Raises TableError for values that made a column text, as polars has none of them.

    A LazyFrame has to know its types before its rows.
    """
    for name, kind in frame.schema.items():
        if kind != empty.schema[name]:
            raise TableError(
                f"Column '{name}' has values that polars cannot hold as {empty.schema[name]}. "
                "Write f.pl(), where they are text."
            )
    return frame
