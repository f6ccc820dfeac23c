"""Reads and writes an SQLite file that other processes use, too."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from threading import Lock
from typing import Any, TypeVar

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
    """Lets one thread of this process at a connection at a time.

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
