"""Answers and their facts as a ledger keeps them, and the look-up of answers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import inf
from pathlib import Path
from typing import Any, Protocol

from relquery.ledger.claims import Claims, HeldClaim
from relquery.ledger.keys import FORMAT, OLDER, Keys, kept_text
from relquery.prompt import Answer, Finish, Prompt, Sampling
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
class StoredCall:
    """The facts that all answers of a call share."""

    model: str
    """The model's name."""
    sampling: Sampling
    usd: Callable[[Answer], float | None] | None = None
    """The cost of an answer; None where it is not known."""
    now: Callable[[], float] = time.time
    """A clock: seconds since 1970."""

    @property
    def settings(self) -> str:
        """The sampling as JSON, without what is at its default."""
        given = {
            setting.name: value
            for setting in fields(self.sampling)
            if (value := getattr(self.sampling, setting.name)) != setting.default
            or setting.name in _ALWAYS
        }
        return json.dumps(given)


@dataclass(frozen=True, slots=True)
class Fact:
    """The facts of an answer that came, or of a failure."""

    key: bytes
    """Of the answer."""
    asked: bytes
    """The key of a whole answer to the same question, which this may not be."""
    call: StoredCall
    answer: Answer
    usd: float | None
    at: float
    """Seconds since 1970."""

    @classmethod
    def of(cls, call: StoredCall, key: bytes, asked: bytes, answer: Answer) -> Fact:
        """About an answer that has just come."""
        usd = None if call.usd is None else call.usd(answer)
        return cls(key, asked, call, answer, usd, call.now())

    def shared(self, call: int, run: int | None) -> tuple[Any, ...]:
        """The values of the columns that answers and failures share."""
        answer = self.answer
        counts = (answer.cached_tokens, answer.written_tokens, answer.attempts)
        return (call, run, self.asked, *counts, self.usd, self.at, None)


def write_facts(connection: Any, facts: Sequence[Fact], run: int | None) -> None:
    """Write facts in a transaction that has begun. run: its number; None without one."""
    if not facts:
        return
    numbers = _numbers(connection, {id(fact.call): fact.call for fact in facts}.values())
    came, failed = [], []
    for fact in facts:
        row = (fact.key, *fact.shared(numbers[id(fact.call)], run))
        if kept_text(fact.answer) is not None:
            came.append(row)
            continue
        answer = fact.answer
        counts = (answer.prompt_tokens, answer.output_tokens)
        failed.append((*row, *counts, answer.finish.value, without_secrets(answer.error or "")))
    if came:
        connection.execute(_FACTS)
        connection.executemany(_into("facts", came), came)
    if failed:
        connection.execute(_FAILURES)
        connection.executemany(_into("failures", failed), failed)


def _numbers(connection: Any, calls: Iterable[StoredCall]) -> dict[int, int]:
    """The number of each call in the file, by its identity here."""
    connection.execute(_CALLS)
    numbers = {}
    for call in calls:
        values = (call.model, call.settings)
        connection.execute("INSERT OR IGNORE INTO calls (model, settings) VALUES (?, ?)", values)
        numbers[id(call)] = connection.execute(_FIND, values).fetchone()[0]
    return numbers


def _into(table: str, rows: Sequence[tuple[Any, ...]]) -> str:
    return f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * len(rows[0]))})"


def without_secrets(text: str) -> str:
    """An error without what looks like a key or a password, and not longer than needed."""
    clean = valid(redacted(text))
    return clean if len(clean) <= _LONGEST else f"{clean[: _LONGEST - 3]}..."


class AnswerStore(Protocol):
    """A store of answers; see Ledger for its fields."""

    @property
    def key_format(self) -> int:
        """The oldest format that its keys may have: FORMAT, OLDER, or 0 where keys of OLDER may
        also be made from a local model's name in place of its fingerprint."""

    @property
    def path(self) -> Path | None:
        """The file or folder; None if in memory."""

    @property
    def has_answers(self) -> bool:
        """Whether it has any answers."""

    def find(self, keys: Keys) -> dict[int, Answer]:
        """The known answers, by index of the prompt."""

    @property
    def claims(self) -> Claims | None:
        """Who is asking what; None if nobody else asks."""

    def put(
        self,
        answers: Iterable[tuple[bytes, Answer]],
        *,
        are_new: bool = True,
        facts: Sequence[Fact] = (),
        claims: Sequence[HeldClaim] = (),
    ) -> None:
        """Store the valid answers durably; see Ledger. Raises sqlite3.Error or OSError."""


def known_answer(
    text: str, prompt_tokens: int, output_tokens: int, scores: Mapping[str, float] | None = None
) -> Answer:
    """A kept answer as it is read again: it takes no attempt."""
    return Answer(
        text,
        Finish.STOP,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        attempts=0,
        scores=scores,
    )


def is_known(answer: Answer) -> bool:
    """Whether an answer is one that a ledger had, as `known_answer` gives it."""
    return answer.attempts == 0 and kept_text(answer) is not None


def scores_as_json(scores: Mapping[str, float]) -> str:
    """Scores as JSON, which has no number for what is impossible."""
    return json.dumps({label: None if log == -inf else log for label, log in scores.items()})


def scores_from_json(text: str) -> dict[str, float]:
    """See `scores_as_json`."""
    return {label: -inf if log is None else log for label, log in json.loads(text).items()}


def look_up(
    ledger: AnswerStore, names: Sequence[str], prompts: Sequence[Prompt], sampling: Sampling
) -> tuple[Keys, dict[int, Answer]]:
    """The keys to store answers under, and the answers already known, by index.

    names: the model's names. Answers are stored under the first; the others are only looked up in a
    ledger written by an older version.
    """
    older = names if ledger.key_format < OLDER else names[:1] if ledger.key_format < FORMAT else ()
    keys = Keys.of(names[0], prompts, sampling, older)
    return keys, ledger.find(keys)
