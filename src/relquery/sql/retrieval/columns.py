"""Finds the column that a function searches, and reads its texts."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from relquery.errors import QueryError, UnknownColumnError, did_you_mean
from relquery.retrieval.corpus import distinct_texts
from relquery.sql.exchange.export import quoted
from relquery.sql.host.database import Database
from relquery.sql.retrieval.named import Named, written
from relquery.sql.retrieval.paths import find_table


class Column(NamedTuple):
    """SQL of a table and of a column of text."""

    table: str
    text: str

    def read(self, database: Database) -> pa.Array:
        """The distinct texts of the column."""
        return distinct_texts(database.fetch(f"SELECT {self.text} FROM {self.table}").column(0))

    def __str__(self) -> str:
        return f"{self.table}.{self.text}"


def find_column(named: Named, database: Database, function: str = "") -> Column:
    """The column that is named, or the only one with text. function: that searches it, for errors.

    Raises QueryError, also for a table that does not exist, and UnknownColumnError.
    """
    table = _table(named.table, database, function)
    columns = database.describe(f"SELECT * FROM {table}")
    if named.column:
        for name, kind in columns:
            if name.lower() == named.column.lower():
                is_text = kind == "VARCHAR"
                return Column(table, quoted(name) if is_text else f"{quoted(name)}::VARCHAR")
        raise UnknownColumnError(named.column, f"'{named.table}'", [name for name, _ in columns])
    texts = [name for name, kind in columns if kind == "VARCHAR"]
    if len(texts) == 1:
        return Column(table, quoted(texts[0]))
    some = f"{len(texts)} columns of text ({', '.join(texts)})" if texts else "no column of text"
    example = texts[0] if texts else columns[0][0]
    raise QueryError(
        f"The table '{named.table}' has {some}. Name the one to search: "
        f"{written(function, Named(named.table, example))}."
    )


def _table(name: str, database: Database, function: str) -> str:
    """SQL of a table that a text names."""
    if ("VIEW", name.lower()) in database.kept.definitions:
        raise QueryError(
            f"'{name}' is a view with LLM calls, which cannot be searched. Save its rows first: "
            f"CREATE TABLE name AS FROM {quoted(name)}."
        )
    found = find_table(name, database)
    if found is not None:
        return found
    table, _, column = name.rpartition(".")
    tables = database.tables()
    hint = did_you_mean(name, tables)
    if table and find_table(table, database) is not None:
        hint = f" Name a column of '{table}' apart: {written(function, Named(table, column))}."
    raise QueryError(
        f"The table '{name}' to search does not exist. Tables: {', '.join(tables) or 'none'}.{hint}"
    )
