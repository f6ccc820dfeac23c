"""Submitted batches and their requests: in an SQLite file that processes share.

What is to be submitted is written down first, under an id of ours that the provider is told. So a
process that is killed at any moment leaves enough to find its batch again.
"""

from __future__ import annotations

import json
import os
import socket
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from relquery.backends.provider.spending import Reservation, transaction
from relquery.errors import ConfigError

_TABLES = (
    "CREATE TABLE IF NOT EXISTS batches (id TEXT PRIMARY KEY, server TEXT NOT NULL, "
    "remote TEXT, begun REAL NOT NULL, owner TEXT NOT NULL, size INTEGER NOT NULL, "
    "state TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS batch_requests (custom TEXT PRIMARY KEY, batch TEXT NOT NULL) "
    "WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS batch_requests_of ON batch_requests (batch)",
    "CREATE TABLE IF NOT EXISTS batch_refusals (server TEXT, setting TEXT, "
    "PRIMARY KEY (server, setting)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS batch_holds (custom TEXT PRIMARY KEY, period TEXT NOT NULL, "
    "amount REAL NOT NULL) WITHOUT ROWID",
)
_COLUMNS = "id, server, remote, begun, owner, size, state"


@dataclass(frozen=True, slots=True)
class BatchJob:
    """One batch."""

    id: str
    server: str
    remote: str | None
    """The provider's id; None until it is known."""
    begun: float
    """The time at which it was begun, in seconds since 1970."""
    owner: str
    """The process that submits it."""
    size: int
    state: str
    """"begun", "sent", or "ended" once its results are there."""

    @property
    def is_ours(self) -> bool:
        """Whether this process submits it."""
        return self.owner == _me()

    @property
    def has_owner(self) -> bool:
        """Whether the process that submits it may still run."""
        host, _, number = self.owner.rpartition(":")
        if host != socket.gethostname():
            return True
        try:
            os.kill(int(number), 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return True


@dataclass(frozen=True, slots=True)
class BatchStore:
    """The batches in a file, a ledger or one of its own."""

    path: Path

    @classmethod
    def open(cls, path: str | Path) -> BatchStore:
        """Open or create it. Raises ConfigError if the file cannot be used."""
        store = cls(Path(path))
        try:
            with store._open() as connection:
                for table in _TABLES:
                    connection.execute(table)
        except sqlite3.Error as error:
            raise ConfigError(
                f"Batches cannot be written down in {path}: {error}. Give the path of a ledger or "
                "of a new file."
            ) from error
        return store

    def begin(self, server: str, customs: Sequence[str], now: float) -> BatchJob | None:
        """Write down a batch of those requests that are in none yet; None if all are."""
        with self._open() as connection:
            known = _jobs_by_custom(connection, customs)
            new = [custom for custom in customs if custom not in known]
            if not new:
                return None
            job = BatchJob(uuid4().hex, server, None, now, _me(), len(new), "begun")
            connection.execute(
                f"INSERT INTO batches ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (job.id, server, None, now, job.owner, job.size, job.state),
            )
            connection.executemany(
                "INSERT INTO batch_requests VALUES (?, ?)", [(custom, job.id) for custom in new]
            )
            return job

    def take_over(self, job: BatchJob) -> bool:
        """Become the one who submits a batch; whether nobody else did so meanwhile."""
        with self._open() as connection:
            changed = connection.execute(
                "UPDATE batches SET owner = ? WHERE id = ? AND owner = ? AND remote IS NULL",
                (_me(), job.id, job.owner),
            )
            return bool(changed.rowcount)

    def sent(self, job: BatchJob, remote: str) -> None:
        """Note the provider's id of a batch."""
        self._set(job, "remote = ?, state = 'sent'", remote)

    def ended(self, job: BatchJob) -> None:
        """Note that the results of a batch are there."""
        self._set(job, "state = 'ended'")

    def forget(self, job: BatchJob) -> None:
        """Forget a batch and its requests: it was not taken, or its results are not needed."""
        with self._open() as connection:
            connection.execute("DELETE FROM batch_requests WHERE batch = ?", (job.id,))
            connection.execute("DELETE FROM batches WHERE id = ?", (job.id,))

    def release(self, job: BatchJob, customs: Iterable[str]) -> None:
        """Note that requests have no answer in their batch, so that another one may take them."""
        with self._open() as connection:
            connection.executemany(
                "DELETE FROM batch_requests WHERE custom = ? AND batch = ?",
                [(custom, job.id) for custom in customs],
            )

    def hold(self, held: Mapping[str, Reservation]) -> None:
        """Write down what requests may cost of a budget that processes share."""
        rows = [(custom, each.period, float(each)) for custom, each in held.items()]
        with self._open() as connection:
            connection.executemany("INSERT OR REPLACE INTO batch_holds VALUES (?, ?, ?)", rows)

    def take_holds(self, customs: Iterable[str]) -> dict[str, Reservation]:
        """What was written down for requests, for the first process that asks for it."""
        sql = "DELETE FROM batch_holds WHERE custom = ? RETURNING amount, period"
        with self._open() as connection:
            holds = [(custom, connection.execute(sql, (custom,)).fetchone()) for custom in customs]
        return {custom: Reservation.of(*row) for custom, row in holds if row is not None}

    def of(self, customs: Iterable[str]) -> dict[str, BatchJob]:
        """The batch of each request that is in one."""
        with self._open() as connection:
            return _jobs_by_custom(connection, customs)

    def requests(self, job: BatchJob) -> list[str]:
        """The requests of a batch that no other one has taken."""
        return self._listed("SELECT custom FROM batch_requests WHERE batch = ?", job.id)

    def all(self) -> list[BatchJob]:
        """All batches, the oldest first."""
        with self._open() as connection:
            rows = connection.execute(f"SELECT {_COLUMNS} FROM batches ORDER BY begun").fetchall()
        return [BatchJob(*row) for row in rows]

    def refuse(self, server: str, settings: Iterable[str]) -> None:
        """Note settings that a server refuses, so that a later run leaves them out."""
        rows = [(server, setting) for setting in settings]
        with self._open() as connection:
            connection.executemany("INSERT OR IGNORE INTO batch_refusals VALUES (?, ?)", rows)

    def refused(self, server: str) -> set[str]:
        """Settings that a server refuses, as far as is written down."""
        return set(self._listed("SELECT setting FROM batch_refusals WHERE server = ?", server))

    def _set(self, job: BatchJob, change: str, *values: object) -> None:
        with self._open() as connection:
            connection.execute(f"UPDATE batches SET {change} WHERE id = ?", (*values, job.id))

    def _listed(self, sql: str, *values: object) -> list[str]:
        with self._open() as connection:
            return [each for (each,) in connection.execute(sql, values)]

    def _open(self) -> AbstractContextManager[sqlite3.Connection]:
        return transaction(self.path, is_durable=True)


def _jobs_by_custom(connection: sqlite3.Connection, customs: Iterable[str]) -> dict[str, BatchJob]:
    columns = ", ".join(f"b.{name}" for name in _COLUMNS.split(", "))
    rows = connection.execute(
        f"SELECT r.custom, {columns} FROM batch_requests r JOIN batches b ON b.id = r.batch "
        "WHERE r.custom IN (SELECT value FROM json_each(?))",
        (json.dumps(list(customs)),),
    )
    return {row[0]: BatchJob(*row[1:]) for row in rows}


def _me() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"
