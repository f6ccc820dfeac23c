"""Who is asking what: claims on keys, so that processes on one file never ask the same twice.

An owner claims keys before it asks, and gives each back with its answer. Claims of an owner whose
lease has passed, or whose process on this machine has ended, are anyone's.

Nobody waits for a claim while holding one (see `turns`), so no order of claims is a deadlock.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

from relquery.ledger.patience import Given, Guard, patiently, transact

LEASE = 15.0
"""Seconds for which claims hold if their owner does not renew them."""

# Beside the answers, so that earlier versions read and write the file as before.
_TABLES = (
    "CREATE TABLE IF NOT EXISTS claims (key BLOB PRIMARY KEY, owner TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS owners (owner TEXT PRIMARY KEY, host TEXT NOT NULL, "
    "process INTEGER NOT NULL, until REAL NOT NULL)",
)
_ARE_THERE = "SELECT 1 FROM sqlite_master WHERE name IN ('claims', 'owners')"
_OWN = "INSERT OR REPLACE INTO owners VALUES (?, ?, ?, ?)"
_CLAIM = "INSERT OR IGNORE INTO claims VALUES (?, ?)"
_GIVE_BACK = "DELETE FROM claims WHERE key = ? AND owner = ?"
_AT_ONCE = 500  # keys of one statement
_PER_TRANSACTION = 20_000  # keys: others wait for the file meanwhile


@dataclass(frozen=True, slots=True)
class Held:
    """A claim on a key."""

    key: bytes
    owner: str


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of a ledger's file. clock: seconds since 1970, which the processes share."""

    connection: Any
    guard: Guard
    clock: Callable[[], float]

    def prepare(self) -> str:
        """Make the tables if there are none. Returns the name of a new owner."""
        if len(self._read(_ARE_THERE)) < len(_TABLES):
            self._write(lambda: [self.connection.execute(table) for table in _TABLES])
        return uuid4().hex

    def take(self, owner: str, keys: Sequence[bytes]) -> set[bytes]:
        """Claim those of the keys that nobody else has; returns the keys that the owner has."""
        mine: set[bytes] = set()
        for start in range(0, len(keys), _PER_TRANSACTION):
            some = keys[start : start + _PER_TRANSACTION]
            mine |= self._write(partial(self._take, owner, some))
        return mine

    def free(self, keys: Sequence[bytes]) -> set[bytes]:
        """Those of the keys that nobody has: given back, answered or not, or without an owner."""
        with self.guard:
            gone = set(patiently(self._gone))
            found = patiently(partial(self._held, keys))
        return set(keys).difference(key for key, owner in found if owner not in gone)

    def renew(self, owner: str) -> None:
        """Begin the lease anew."""
        values = (self.clock() + LEASE, owner)
        self._write(
            lambda: self.connection.execute("UPDATE owners SET until = ? WHERE owner = ?", values)
        )

    def give_back(self, owner: str, keys: Sequence[bytes]) -> None:
        """Give some claims of an owner back."""
        if keys:
            claims = [Held(key, owner) for key in keys]
            self._write(lambda: give_back(self.connection, claims))

    def forget(self, owner: str) -> None:
        """Give all claims of an owner back, who is then gone."""
        self._write(partial(self._forget, owner))

    def _take(self, owner: str, keys: Sequence[bytes]) -> set[bytes]:
        for gone in self._gone():
            self._forget(gone)
        values = (owner, here(), os.getpid(), self.clock() + LEASE)
        self.connection.execute(_OWN, values)
        self.connection.executemany(_CLAIM, ((key, owner) for key in keys))
        return {key for key, of in self._held(keys) if of == owner}

    def _held(self, keys: Sequence[bytes]) -> list[tuple[bytes, str]]:
        """Those of the keys that are claimed, and their owners."""
        found: list[tuple[bytes, str]] = []
        for start in range(0, len(keys), _AT_ONCE):
            some = keys[start : start + _AT_ONCE]
            marks = ", ".join("?" * len(some))
            found += self.connection.execute(
                f"SELECT key, owner FROM claims WHERE key IN ({marks})", some
            ).fetchall()
        return found

    def _gone(self) -> list[str]:
        """Owners whose claims no longer hold."""
        now, machine = self.clock(), here()
        owners = self.connection.execute("SELECT owner, host, process, until FROM owners")
        return [
            owner
            for owner, host, process, until in owners.fetchall()
            if until <= now or (host == machine and not is_running(process))
        ]

    def _forget(self, owner: str) -> None:
        self.connection.execute("DELETE FROM claims WHERE owner = ?", (owner,))
        self.connection.execute("DELETE FROM owners WHERE owner = ?", (owner,))

    def _read(self, sql: str) -> list[Any]:
        with self.guard:
            return patiently(lambda: self.connection.execute(sql).fetchall())

    def _write(self, act: Callable[[], Given]) -> Given:
        return transact(self.connection, self.guard, act)


def give_back(connection: Any, claims: Sequence[Held]) -> None:
    """Give claims back in a transaction that has begun."""
    if claims:  # else there may be no such table
        connection.executemany(_GIVE_BACK, ((one.key, one.owner) for one in claims))


def is_running(process: int) -> bool:
    """Whether a process of this machine is running, as far as can be told."""
    if os.name != "posix":  # elsewhere the question would be a signal
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is somebody else's
        return True
    return True


def here() -> str:
    """A name for this machine, or for the container, in which a process has its number."""
    name = socket.gethostname()
    with suppress(OSError):
        name += f" {os.readlink('/proc/self/ns/pid')}"
    return name
