"""A ledger for a person: all that is known of its answers and failures, read and deleted."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relquery.errors import ConfigError
from relquery.ledger.claims import patiently
from relquery.ledger.folder import SUFFIX, read_lines
from relquery.ledger.runs import Run, runs_of
from relquery.ledger.store import Ledger, open_to_read, stored_text
from relquery.ledger.stored import TABLES

COLUMNS = (
    "key, model, settings, text, error, prompt_tokens, cached_tokens, written_tokens, "
    "output_tokens, attempts, usd, at, run"
)
_KNOWN = "f.cached_tokens, f.written_tokens"
# A call that failed and was answered later has its answer under the same key or, if that decides a
# comparison, under another one.
ENTRIES = f"""
    SELECT a.key, c.model, c.settings, a.text, NULL AS error, a.prompt_tokens, {_KNOWN},
        a.output_tokens, f.attempts, f.usd, f.at, f.run, 0 AS is_open, NULL AS failure
    FROM answers a LEFT JOIN facts f ON f.key = a.key LEFT JOIN calls c ON c.call = f.call
    UNION ALL
    SELECT f.key, c.model, c.settings, NULL, f.error, f.prompt_tokens, {_KNOWN},
        f.output_tokens, f.attempts, f.usd, f.at, f.run,
        f.key NOT IN (SELECT key FROM answers)
        AND (f.call, f.prompt) NOT IN (SELECT call, prompt FROM facts WHERE prompt IS NOT NULL),
        f.rowid
    FROM failures f LEFT JOIN calls c ON c.call = f.call"""
_GROUPS = f"""
    SELECT run, model, count(*) FILTER (WHERE error IS NULL), count(*) FILTER (WHERE is_open),
        count(*) FILTER (WHERE error IS NOT NULL), sum(attempts), sum(prompt_tokens),
        sum(cached_tokens), sum(output_tokens), sum(usd), min(at), max(at)
    FROM ({ENTRIES}) WHERE {{}} GROUP BY run, model ORDER BY run, model"""


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """A choice of answers and failures.

    A name without `@SERVER` is that model at all servers.
    """

    model: str | None = None
    """A name, or a pattern with * and ?."""
    since: float | None = None
    """The earliest time, in seconds since 1970; what has no time is before all."""
    before: float | None = None
    """The time before which they came, in seconds since 1970."""
    failed: bool = False
    """Failures alone, of calls that have no answer."""

    @property
    def is_all(self) -> bool:
        """Whether nothing is left out."""
        return self == RecordFilter()

    def condition(self) -> tuple[str, list[Any]]:
        """As SQL over the columns, with the values of its parameters."""
        clauses: list[tuple[str, list[Any]]] = [("1", [])]
        if self.model is not None:
            clauses.append(_of_model(self.model))
        if self.since is not None:
            clauses.append(("at >= ?", [self.since]))
        if self.before is not None:
            clauses.append(("coalesce(at, 0) < ?", [self.before]))
        if self.failed:
            clauses.append(("is_open", []))
        return " AND ".join(sql for sql, _ in clauses), [
            parameter for _, some in clauses for parameter in some
        ]


@dataclass(frozen=True, slots=True)
class Group:
    """The calls of a run to a model; both are None where they are not known."""

    run: int | None
    """The number of the run; None where it is not known."""
    model: str | None
    answers: int
    failed: int
    """Failures of calls that have no answer."""
    failures: int
    """All failures. Tokens and USD are those of answers and failures, as far as they are known."""
    attempts: int | None
    prompt_tokens: int
    cached_tokens: int | None
    output_tokens: int
    usd: float | None
    first: float | None
    """The time of the first, in seconds since 1970."""
    last: float | None
    """The time of the last, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Records:
    """The content of a ledger. Made by `opened`."""

    connection: sqlite3.Connection

    def runs(self) -> list[Run]:
        """Its runs, the first one first."""
        return runs_of(self.connection)

    def check_model(self, wanted: RecordFilter) -> None:
        """Raises ConfigError if it has models, and none that is asked about."""
        if wanted.model is None:
            return
        condition, values = _of_model(wanted.model)
        query = f"SELECT DISTINCT model, {condition} FROM ({ENTRIES}) WHERE model IS NOT NULL"
        models = dict(self.connection.execute(f"{query} ORDER BY model", values).fetchall())
        if models and not any(models.values()):
            raise ConfigError(
                f"The ledger has nothing of a model '{wanted.model}'. Its models: "
                f"{', '.join(models)}."
            )

    def groups(self, wanted: RecordFilter) -> list[Group]:
        """Its answers and failures, counted by run and model."""
        condition, values = wanted.condition()
        return [Group(*row) for row in self.connection.execute(_GROUPS.format(condition), values)]

    def entries(self, wanted: RecordFilter) -> list[tuple[Any, ...]]:
        """Its answers and failures, each with COLUMNS; keys in hex."""
        condition, values = wanted.condition()
        rows = self.connection.execute(
            f"SELECT {COLUMNS} FROM ({ENTRIES}) WHERE {condition} ORDER BY at, key", values
        )
        return [
            (key.hex(), model, settings, text and stored_text(text), *rest)
            for key, model, settings, text, *rest in rows
        ]


def _of_model(name: str) -> tuple[str, list[Any]]:
    """Whether a row is of a model, as SQL with the values of its parameters."""
    prefix = f"{name}@"
    return "(model = ? OR model GLOB ? OR substr(model, 1, ?) = ?)", [
        name,
        name,
        len(prefix),
        prefix,
    ]


@contextmanager
def opened(path: Path) -> Iterator[Records]:
    """A ledger in a file, or in a folder as Spark writes it, for reading.

    Raises ConfigError for what is not a ledger.
    """
    if not path.exists():
        raise ConfigError(f"The ledger {path} does not exist.")
    with closing(_from_folder(path) if path.is_dir() else _from_file(path)) as connection:
        for name, table in TABLES.items():
            if not _has(connection, name):  # a file of an earlier version
                connection.execute(table.replace("CREATE TABLE", "CREATE TEMP TABLE", 1))
        yield Records(connection)


def _from_file(path: Path) -> sqlite3.Connection:
    connection = open_to_read(path)
    try:
        is_ledger = patiently(lambda: _has(connection, "answers"))
        if is_ledger:
            connection.execute(
                "SELECT key, text, prompt_tokens, output_tokens FROM answers LIMIT 0"
            )
            return connection
        reason = "it has no table of answers"
    except sqlite3.Error as error:
        reason = str(error)
    connection.close()
    raise ConfigError(f"{path} is not a ledger: {reason}. Give a file that --ledger has written.")


def _from_folder(path: Path) -> sqlite3.Connection:
    """All answers of a folder, in memory."""
    files = sorted(path.glob(f"*{SUFFIX}"))
    if not files:
        raise ConfigError(f"{path} is not a ledger: the folder has no file *{SUFFIX}.")
    ledger = Ledger.open()
    for file in files:
        ledger.put(read_lines(file)[0].items())
    connection: sqlite3.Connection = ledger.connection
    return connection


def _has(connection: sqlite3.Connection, table: str) -> bool:
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    return connection.execute(query, (table,)).fetchone() is not None


@dataclass(frozen=True, slots=True)
class Pruned:
    """Numbers of deleted answers and failures."""

    answers: int
    failures: int


def prune(path: Path, wanted: RecordFilter) -> Pruned:
    """Delete answers with what is known of them, and failures; they are asked again when needed.

    Raises ConfigError for what is not a ledger's file, and if it cannot be written.
    """
    try:
        with closing(Ledger.open(path)) as ledger:
            pruned = ledger.write(lambda: _delete(ledger, wanted))
            with suppress(sqlite3.Error):  # somebody reads it: the room is used again later
                ledger.connection.execute("VACUUM")
            return pruned
    except sqlite3.Error as error:
        raise ConfigError(f"The ledger {path} cannot be pruned: {error}.") from error


def _delete(ledger: Ledger, wanted: RecordFilter) -> Pruned:
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
    for table in ("facts", "scores") if has_scores else ("facts",):
        file.execute(f"DELETE FROM {table} WHERE key IN {doomed}")
    failures = file.execute(
        "DELETE FROM failures WHERE rowid IN (SELECT failure FROM doomed)"
    ).rowcount
    file.execute("DROP TABLE doomed")
    return Pruned(answers, failures)
