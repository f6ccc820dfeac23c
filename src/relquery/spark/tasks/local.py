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
from relquery.sql.planner import checks


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
    checks.install_macros(database)
    return database
