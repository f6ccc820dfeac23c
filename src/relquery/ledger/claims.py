"""Claims on keys that are being asked, in a file that several processes use.

An owner claims keys before it asks, and gives each back with its answer. Claims of an owner whose
lease has passed, or whose process on this machine has ended, are anyone's.

Nobody waits for a claim while holding one (see `turns`), so no order of claims is a deadlock.
"""

from __future__ import annotations

import logging
import os
import socket
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf
from threading import Lock
from typing import Any, TypeVar
from uuid import uuid4

_LOG = logging.getLogger("relquery")
_BUSY_CODES = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)
# If another process has locked the file, SQLite waits and we retry.
BUSY_SECONDS, _PAUSE_SECONDS = 0.05, 0.01
_MOST_SECONDS = 60.0
_TOLD_SECONDS = 2.0
"""After which the user is told what is waited for."""
_AGAIN_SECONDS, _FORGIVEN_SECONDS = 1.0, 300.0
"""For how long a file is waited for that was locked a minute long, and when it no longer counts."""

Given = TypeVar("Given")


def patiently(act: Callable[[], Given], most: float | None = None) -> Given:
    """Retry while another process has locked the file.

    most: seconds, of which there is a minute if nothing is said. SQLite itself waits unless it sees
    a risk of deadlock: when a file is created or recovered.
    """
    began, is_told, most = time.monotonic(), False, _MOST_SECONDS if most is None else most
    while True:
        try:
            return act()
        except sqlite3.OperationalError as error:
            waited = time.monotonic() - began
            if not _is_busy(error) or waited >= most:
                raise
            if waited > _TOLD_SECONDS and not is_told:
                is_told = True
                _LOG.warning(
                    "Another program has locked the ledger. It is waited for, up to %.0f seconds; "
                    "end that program, or give another ledger.", most,
                )  # fmt: skip
            time.sleep(_PAUSE_SECONDS)


@dataclass(slots=True)
class Guard:
    """A lock that lets one thread of this process at a connection.

    given_up: seconds of the monotonic clock at which the file was last found locked for too long.
    """

    lock: Lock = field(default_factory=Lock)
    given_up: float = -inf

    def __enter__(self) -> None:
        self.lock.acquire()

    def __exit__(self, *raised: object) -> None:
        self.lock.release()


def transact(connection: Any, guard: Guard, act: Callable[[], Given]) -> Given:
    """Run an action that writes, all of it or nothing. Raises sqlite3.Error."""

    def once() -> Given:
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            return act()

    with guard:
        is_recent = time.monotonic() - guard.given_up < _FORGIVEN_SECONDS
        try:
            done = patiently(once, _AGAIN_SECONDS if is_recent else _MOST_SECONDS)
        except sqlite3.OperationalError as error:
            if _is_busy(error):
                guard.given_up = time.monotonic()
            raise
        guard.given_up = -inf
        return done


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF in _BUSY_CODES


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
class HeldClaim:
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
            held = patiently(partial(self._held, keys))
        return set(keys).difference(key for key, owner in held if owner not in gone)

    def renew(self, owner: str) -> None:
        """Begin the lease anew."""
        values = (self.clock() + LEASE, owner)
        self._write(
            lambda: self.connection.execute("UPDATE owners SET until = ? WHERE owner = ?", values)
        )

    def give_back(self, owner: str, keys: Sequence[bytes]) -> None:
        """Give some claims of an owner back."""
        if keys:
            claims = [HeldClaim(key, owner) for key in keys]
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
        holders: list[tuple[bytes, str]] = []
        for start in range(0, len(keys), _AT_ONCE):
            some = keys[start : start + _AT_ONCE]
            marks = ", ".join("?" * len(some))
            holders += self.connection.execute(
                f"SELECT key, owner FROM claims WHERE key IN ({marks})", some
            ).fetchall()
        return holders

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


def give_back(connection: Any, claims: Sequence[HeldClaim]) -> None:
    """Give claims back in a transaction that has begun."""
    if claims:  # else there may be no such table
        connection.executemany(_GIVE_BACK, ((claim.key, claim.owner) for claim in claims))


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
