"""Runs of statements, so that one that was stopped can be run again."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from relquery.ledger.claims import here, is_running
from relquery.ledger.store import Ledger

RUNS = (
    "CREATE TABLE IF NOT EXISTS runs (run INTEGER PRIMARY KEY, begun REAL NOT NULL, ended REAL, "
    "state TEXT NOT NULL, host TEXT NOT NULL, process INTEGER NOT NULL, query TEXT NOT NULL, "
    "options TEXT NOT NULL, files TEXT NOT NULL)"
)
_COLUMNS = "run, begun, ended, state, host, process, query, options, files"
_BEGIN = (
    "INSERT INTO runs (begun, state, host, process, query, options, files) "
    "VALUES (?, ?, ?, ?, ?, ?, ?)"
)


class RunState(Enum):
    """The state of a run.

    COMPLETE: every row has its values. INCOMPLETE: it ended, and some have none. STOPPED: by an
    error or a person. PENDING: it waits for a batch. KILLED: without a word. CONTINUED: another
    run has gone on with it.
    """

    RUNNING = "running"
    COMPLETE = "complete"
    INCOMPLETE = "incomplete"
    STOPPED = "stopped"
    PENDING = "pending"
    KILLED = "killed"
    CONTINUED = "continued"


UNFINISHED = (RunState.INCOMPLETE, RunState.STOPPED, RunState.PENDING, RunState.KILLED)


@dataclass(frozen=True, slots=True)
class FileStamp:
    """The state of a file when a run began."""

    size: int
    """Bytes of the file."""
    changed: int
    """The time of its last change, in nanoseconds since 1970."""

    @classmethod
    def of(cls, path: str) -> FileStamp | None:
        """How a file is now; None if there is none."""
        try:
            status = os.stat(path)
        except OSError:
            return None
        return cls(status.st_size, status.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class Run:
    """A run."""

    number: int
    begun: float
    """When it began, in seconds since 1970."""
    ended: float | None
    """When it ended, in seconds since 1970."""
    state: RunState
    process: int
    query: str
    """Its statements."""
    options: Mapping[str, Sequence[str]]
    """Options of the command line by name, without secrets."""
    files: Mapping[str, FileStamp]
    """Stamps of its tables, by path."""

    @classmethod
    def of(cls, row: Sequence[Any]) -> Run:
        """From a row of the table."""
        number, begun, ended, state, host, process, query, options, files = row
        now = RunState(state)
        if now is RunState.RUNNING and host == here() and not is_running(process):
            now = RunState.KILLED
        stamps = {path: FileStamp(*stamp) for path, stamp in json.loads(files).items()}
        return cls(number, begun, ended, now, process, query, json.loads(options), stamps)


def begin_run(
    ledger: Ledger,
    query: str,
    options: Mapping[str, Sequence[str]],
    files: Mapping[str, FileStamp],
) -> int:
    """Note that a run begins; unfinished runs of the same query are continued by it.

    Answers stored from now on are its own. Raises sqlite3.Error.
    """
    stamps = {path: (stamp.size, stamp.changed) for path, stamp in files.items()}
    texts = (query, json.dumps(options), json.dumps(stamps))

    def begin() -> int:
        ledger.connection.execute(RUNS)
        for run in _select(ledger.connection):
            if run.query == query and run.state in UNFINISHED:
                _set(ledger.connection, run.number, RunState.CONTINUED, run.ended)
        row = (ledger.clock(), RunState.RUNNING.value, here(), os.getpid(), *texts)
        return int(ledger.connection.execute(_BEGIN, row).lastrowid)

    ledger.run = ledger.write(begin)
    return ledger.run


def end_run(ledger: Ledger, state: RunState) -> None:
    """Note how the run has ended. Raises sqlite3.Error."""
    number, ledger.run = ledger.run, None
    if number is not None:
        ended = ledger.clock()
        ledger.write(lambda: _set(ledger.connection, number, state, ended))


def runs_of(connection: Any) -> list[Run]:
    """All runs, the first one first. Raises sqlite3.Error."""
    known = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'runs'").fetchone()
    return _select(connection) if known else []


def _select(connection: Any) -> list[Run]:
    return [Run.of(row) for row in connection.execute(f"SELECT {_COLUMNS} FROM runs ORDER BY run")]


def _set(connection: Any, number: int, state: RunState, ended: float | None) -> None:
    values = (state.value, ended, number)
    connection.execute("UPDATE runs SET state = ?, ended = ? WHERE run = ?", values)
