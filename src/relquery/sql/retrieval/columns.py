"""Finds the column that a function searches, and reads its texts."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from relquery.errors import QueryError, UnknownColumnError, did_you_mean
from relquery.retrieval.corpus import distinct_texts
from relquery.sql.exchange.export import quoted
from relquery.sql.host.database import Database
from relquery.sql.retrieval.named import Named


class Column(NamedTuple):
    """SQL of a table and of a column of text."""

    table: str
    text: str

    def read(self, database: Database) -> pa.Array:
        """The distinct texts of the column."""
        return distinct_texts(database.fetch(f"SELECT {self.text} FROM {self.table}").column(0))

    def __str__(self) -> str:
        return f"{self.table}.{self.text}"


def find_column(named: Named, database: Database) -> Column:
    """The column that is named, or the only one with text.

    Raises QueryError, also for a table that does not exist, and UnknownColumnError.
    """
    table = _table(named.table, database)
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
        f"passages('{named.table}', question, 5, '{example}'), or '{named.table}.{example}' in a "
        "span query."
    )


def _table(written: str, database: Database) -> str:
    """SQL of a table that a text names: by its name, or by a path such as schema.table."""
    if ("VIEW", written.lower()) in database.kept.definitions:
        raise QueryError(
            f"'{written}' is a view with LLM calls, which cannot be searched. Save its rows first: "
            f"CREATE TABLE name AS FROM {quoted(written)}."
        )
    found = database.find_table(written)
    if found is None:
        tables = database.tables()
        raise QueryError(
            f"The table '{written}' to search does not exist. Tables: "
            f"{', '.join(tables) or 'none'}.{did_you_mean(written, tables)}"
        )
    return found
