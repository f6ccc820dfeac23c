"""What is known of how an answer came, and of calls that failed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from relquery.ledger.keys import kept_text
from relquery.prompt import Answer, Sampling
from relquery.redaction import redacted
from relquery.unicode import valid

# Beside the answers, so that earlier versions read and write the file as before. These had a hash
# of the prompt in `prompt`, where the key of the question is now, and seconds.
_CALLS = (
    "CREATE TABLE IF NOT EXISTS calls (call INTEGER PRIMARY KEY, model TEXT NOT NULL, "
    "settings TEXT NOT NULL, UNIQUE (model, settings))"
)
_SHARED = (
    "call INTEGER NOT NULL, run INTEGER, prompt BLOB, cached_tokens INTEGER NOT NULL, "
    "written_tokens INTEGER NOT NULL, attempts INTEGER NOT NULL, usd REAL, at REAL NOT NULL, "
    "seconds REAL"
)
_FACTS = f"CREATE TABLE IF NOT EXISTS facts (key BLOB PRIMARY KEY, {_SHARED}) WITHOUT ROWID"
_FAILURES = (
    f"CREATE TABLE IF NOT EXISTS failures (key BLOB NOT NULL, {_SHARED}, "
    "prompt_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, finish TEXT NOT NULL, "
    "error TEXT NOT NULL)"
)
TABLES = {
    "calls": _CALLS,
    "facts": _FACTS,
    "failures": _FAILURES,
}
"""What makes each table, by its name."""
_FIND = "SELECT call FROM calls WHERE model = ? AND settings = ?"
_ALWAYS = ("max_tokens", "temperature")
_LONGEST = 500  # characters of an error


@dataclass(frozen=True, slots=True)
class Call:
    """What the answers of a call have in common.

    model: its name. usd: what an answer costs; None where it is not known. now: seconds since 1970.
    """

    model: str
    sampling: Sampling
    usd: Callable[[Answer], float | None] | None = None
    now: Callable[[], float] = time.time

    @property
    def settings(self) -> str:
        """The sampling as JSON, without what is at its default."""
        given = {
            one.name: value
            for one in fields(self.sampling)
            if (value := getattr(self.sampling, one.name)) != one.default or one.name in _ALWAYS
        }
        return json.dumps(given)


@dataclass(frozen=True, slots=True)
class Fact:
    """How an answer came, or that none did."""

    key: bytes
    """Of the answer."""
    asked: bytes
    """The key of a whole answer to the same question, which this may not be."""
    call: Call
    answer: Answer
    usd: float | None
    at: float
    """Seconds since 1970."""

    @classmethod
    def of(cls, call: Call, key: bytes, asked: bytes, answer: Answer) -> Fact:
        """About an answer that has just come."""
        usd = None if call.usd is None else call.usd(answer)
        return cls(key, asked, call, answer, usd, call.now())

    def shared(self, call: int, run: int | None) -> tuple[Any, ...]:
        """The values of the columns that answers and failures share."""
        one = self.answer
        counts = (one.cached_tokens, one.written_tokens, one.attempts)
        return (call, run, self.asked, *counts, self.usd, self.at, None)


def write_facts(connection: Any, facts: Sequence[Fact], run: int | None) -> None:
    """Write facts in a transaction that has begun. run: its number; None without one."""
    if not facts:
        return
    numbers = _numbers(connection, {id(one.call): one.call for one in facts}.values())
    came, failed = [], []
    for one in facts:
        row = (one.key, *one.shared(numbers[id(one.call)], run))
        if kept_text(one.answer) is not None:
            came.append(row)
            continue
        answer = one.answer
        counts = (answer.prompt_tokens, answer.output_tokens)
        failed.append((*row, *counts, answer.finish.value, without_secrets(answer.error or "")))
    if came:
        connection.execute(_FACTS)
        connection.executemany(_into("facts", came), came)
    if failed:
        connection.execute(_FAILURES)
        connection.executemany(_into("failures", failed), failed)


def _numbers(connection: Any, calls: Iterable[Call]) -> dict[int, int]:
    """The number of each call in the file, by its identity here."""
    connection.execute(_CALLS)
    found = {}
    for call in calls:
        values = (call.model, call.settings)
        connection.execute("INSERT OR IGNORE INTO calls (model, settings) VALUES (?, ?)", values)
        found[id(call)] = connection.execute(_FIND, values).fetchone()[0]
    return found


def _into(table: str, rows: Sequence[tuple[Any, ...]]) -> str:
    return f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * len(rows[0]))})"


def without_secrets(text: str) -> str:
    """An error without what looks like a key or a password, and not longer than needed."""
    clean = valid(redacted(text))
    return clean if len(clean) <= _LONGEST else f"{clean[: _LONGEST - 3]}..."
