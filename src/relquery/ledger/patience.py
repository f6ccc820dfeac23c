"""Reads and writes an SQLite file that other processes use, too."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from threading import Lock
from typing import Any, TypeVar

_BUSY_CODES = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)
# If another process has locked the file, SQLite waits and we retry, for up to a minute.
BUSY_SECONDS, _PAUSE_SECONDS, _TRIES = 0.05, 0.01, 1000

Given = TypeVar("Given")


def patiently(act: Callable[[], Given]) -> Given:
    """Retry while another process has locked the file.

    SQLite itself waits unless it sees a risk of deadlock: when a file is created or recovered.
    """
    for _ in range(_TRIES):
        try:
            return act()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in _BUSY_CODES:
                raise
            time.sleep(_PAUSE_SECONDS)
    return act()


def transact(connection: Any, lock: Lock, act: Callable[[], Given]) -> Given:
    """Run an action that writes, all of it or nothing. Raises sqlite3.Error."""

    def once() -> Given:
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            return act()

    with lock:
        return patiently(once)
