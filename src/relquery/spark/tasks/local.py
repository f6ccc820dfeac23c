"""Expressions over rows as DuckDB computes them, in whatever process the rows are.

What reads an answer is computed so: an answer is read by one rule on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from relquery.sql import names as ours
from relquery.sql.host.database import Database


@dataclass(frozen=True, slots=True)
class Local:
    """A query over the rows of a batch, which it reads as `ours.ROWS`. Each batch is on its own.

    zone: the time zone in which times with a zone are written. schema: of what it gives.
    """

    sql: str
    schema: pa.Schema
    zone: str

    def over(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What it gives for each batch. Raises QueryError."""
        database = _database(self.zone)
        for batch in batches:
            database.register(ours.ROWS, pa.Table.from_batches([batch]))
            try:
                found = database.fetch(self.sql)
            finally:
                database.unregister(ours.ROWS)
            yield from found.cast(self.schema).to_batches()


@lru_cache(maxsize=1)
def _database(zone: str) -> Database:
    """A database with what readings of answers need. One thread: its machine runs many tasks."""
    database = Database.open()
    database.execute("SET threads = 1")
    database.execute(f"SET TimeZone = '{zone}'")
    return database


def plain(kind: pa.DataType) -> pa.DataType:
    """A type as Spark has it: texts instead of codes, and times in microseconds."""
    is_a = pa.types
    found = kind
    if is_a.is_dictionary(kind):
        found = plain(kind.value_type)
    elif is_a.is_large_string(kind) or is_a.is_string_view(kind):
        found = pa.string()
    elif is_a.is_list(kind) or is_a.is_large_list(kind):
        found = pa.list_(plain(kind.value_type))
    elif is_a.is_struct(kind):
        found = pa.struct([(field.name, plain(field.type)) for field in kind])
    elif is_a.is_map(kind):
        found = pa.map_(plain(kind.key_type), plain(kind.item_type))
    elif is_a.is_timestamp(kind):
        found = pa.timestamp("us", kind.tz)
    elif is_a.is_unsigned_integer(kind):
        found = pa.decimal128(20, 0) if kind.bit_width == 64 else pa.int64()
    return found
