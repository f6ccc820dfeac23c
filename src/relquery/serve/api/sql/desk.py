"""Connections for the statements of a server: each its own, over the same tables and engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from tempfile import TemporaryDirectory
from threading import Lock

from relquery.backends.base import Backend
from relquery.connection import Connection, connect
from relquery.ledger import Ledger
from relquery.serve.api.sql.tables import Tables
from relquery.serve.tasks import Stop, Stopping
from relquery.sql.exchange.arrow import Most

MOST_READ = Most(cells=5_000_000, bytes=256 << 20)
"""Of one result, and of what a statement asks the model about."""
MOST_ANSWERS = 200_000
"""Answers that are kept of one tenant; then its ledger begins anew."""


class Desk:
    """Hands out connections. tables: what they read. Used from any thread."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self._ledgers: dict[str, Ledger] = {}
        # Of searched tables, which are the same for all.
        self._indexes = TemporaryDirectory(prefix="relquery-indexes-")
        # DuckDB keeps the functions of all connections in one catalogue.
        self._opening, self._looking = Lock(), Lock()

    @contextmanager
    def connection(
        self, backend: Backend, cancel: Stop, stopping: Stopping
    ) -> Iterator[Connection]:
        """A connection for one thread, which is closed at the end. It keeps no answers.

        stopping: ends what it runs, with `cancel` what it asks the backend.
        """
        with self._opening:
            cursor = self.tables.cursor()
            index = self._indexes.name
            connection = connect(backend, database=cursor, ledger=None, index=index, progress=False)
            database = replace(connection.database, most=MOST_READ)
            connection = replace(connection, database=database)
        try:
            with stopping.stops(cursor.interrupt, cancel):
                yield connection
        finally:
            with self._opening:
                connection.close()
                cursor.close()

    def keeping(self, connection: Connection, tenant: str) -> Connection:
        """The same connection, which shares answers with the tenant's other statements."""
        return replace(connection, ledger=self._ledger(tenant))

    def close(self) -> None:
        """Free the tables and answers."""
        for ledger in self._ledgers.values():
            ledger.close()
        self.tables.close()
        self._indexes.cleanup()

    def _ledger(self, tenant: str) -> Ledger:
        """The answers of a tenant, which no other tenant is given.

        A full one is left to the statements that use it.
        """
        with self._looking:
            found = self._ledgers.get(tenant)
            if found is None or found.stored >= MOST_ANSWERS:
                found = self._ledgers[tenant] = Ledger.open()
            return found
