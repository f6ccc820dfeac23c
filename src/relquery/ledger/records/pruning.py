"""Deletes what is no longer wanted from a ledger's file."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from relquery.errors import ConfigError
from relquery.ledger.facts import TABLES
from relquery.ledger.records.reading import ENTRIES, Filter
from relquery.ledger.store import Ledger


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many answers and failures were deleted."""

    answers: int
    failures: int


def prune(path: Path, wanted: Filter) -> Pruned:
    """Delete answers with what is known of them, and failures; they are asked again when needed.

    Raises ConfigError for what is not a ledger's file, and if it cannot be written.
    """
    try:
        with closing(Ledger.open(path)) as ledger:
            found = ledger.write(lambda: _delete(ledger, wanted))
            with suppress(sqlite3.Error):  # somebody reads it: the room is used again later
                ledger.connection.execute("VACUUM")
            return found
    except sqlite3.Error as error:
        raise ConfigError(f"The ledger {path} cannot be pruned: {error}.") from error


def _delete(ledger: Ledger, wanted: Filter) -> Pruned:
    file = ledger.connection
    for table in TABLES.values():
        file.execute(table)
    condition, values = wanted.condition()
    file.execute("CREATE TEMP TABLE doomed (key BLOB, failure INTEGER)")
    file.execute(
        f"INSERT INTO doomed SELECT key, failure FROM ({ENTRIES}) WHERE {condition}", values
    )
    doomed = "(SELECT key FROM doomed WHERE failure IS NULL)"
    answers = file.execute(f"DELETE FROM answers WHERE key IN {doomed}").rowcount
    has_scores = file.execute("SELECT 1 FROM sqlite_master WHERE name = 'scores'").fetchone()
    for table in ("facts", "expected", "scores") if has_scores else ("facts", "expected"):
        file.execute(f"DELETE FROM {table} WHERE key IN {doomed}")
    file.execute("DELETE FROM plans WHERE plan NOT IN (SELECT plan FROM expected)")
    failures = file.execute(
        "DELETE FROM failures WHERE rowid IN (SELECT failure FROM doomed)"
    ).rowcount
    file.execute("DROP TABLE doomed")
    return Pruned(answers, failures)
