"""The store itself: one table in an SQLite file that several processes can use at once."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from relquery.errors import ConfigError, LedgerWarning, warn
from relquery.ledger.claims import (
    BUSY_SECONDS,
    Claims,
    Given,
    Guard,
    HeldClaim,
    give_back,
    patiently,
    transact,
)
from relquery.ledger.keys import FORMAT, Keys, kept_text
from relquery.ledger.stored import Fact, known_answer, scores_as_json, scores_from_json, write_facts
from relquery.prompt import Answer

_COLUMNS = (
    "key BLOB PRIMARY KEY, text TEXT NOT NULL, "
    "prompt_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL"
)
_IS_THERE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'answers'"
SELECT = "SELECT key, text, prompt_tokens, output_tokens FROM answers"
# Beside the answers, so that earlier versions read and write the file as before. Most files have
# none.
_SCORES = "CREATE TABLE IF NOT EXISTS scores (key BLOB PRIMARY KEY, scores TEXT) WITHOUT ROWID"
_HAS_SCORES = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'scores'"
_LOOK_UP_AT_ONCE = 500
_NO_ROOM = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)


@dataclass(slots=True)
class Ledger:
    """A store of deterministic answers: whole answers, and prefixes that decide a comparison."""

    connection: Any
    path: Path | None
    """The file; None if in memory."""
    key_format: int = FORMAT
    """See AnswerStore."""
    stored: int = 0
    """The number of answers stored through this object."""
    run: int | None = None
    """The number of the run whose answers are stored; None without one."""
    clock: Callable[[], float] = time.time
    """A clock: seconds since 1970."""
    is_read_only: bool = False
    """Whether the file cannot be written; answers are then found, and none are stored."""
    _guard: Guard = field(default_factory=Guard)

    @classmethod
    def open(cls, path: str | Path = ":memory:") -> Ledger:
        """Open or create a ledger. Raises ConfigError if the file is not a ledger.

        Issues LedgerWarning if it can only be read.
        """
        connection, is_read_only = None, str(path) != ":memory:" and _is_read_only(Path(path))
        try:
            connection = open_to_read(Path(path)) if is_read_only else _connect(str(path))
            version = patiently(lambda: _prepare(connection, creates=not is_read_only))
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            if not Path(path).absolute().parent.is_dir():
                raise ConfigError(
                    f"The ledger {path} cannot be opened: the folder {Path(path).parent} does not "
                    "exist. Create it first."
                ) from error
            raise ConfigError(
                f"The ledger {path} cannot be opened: {error}. Give the path of an existing "
                "ledger or of a new file."
            ) from error
        if version > FORMAT:
            connection.close()
            raise ConfigError(
                f"The ledger {path} was written by a newer relquery, in a form that this version "
                "does not know. Update relquery, or give another file."
            )
        file = None if str(path) == ":memory:" else Path(path)
        if is_read_only:
            warn(
                f"The ledger {path} can only be read: its answers are used, but new ones are not "
                "stored, and would be paid again. Make the file and its folder writable, or give "
                "another file.",
                LedgerWarning,
            )
        return cls(connection, file, key_format=version, is_read_only=is_read_only)

    def get(self, keys: Sequence[bytes]) -> dict[bytes, Answer]:
        """The known answers, by key. Raises ConfigError if the file cannot be read."""
        known = {
            key: known_answer(stored_text(text), prompt_tokens, output_tokens)
            for key, text, prompt_tokens, output_tokens in self._of_keys(SELECT, keys)
        }
        for key, scores in self._scores(list(known)).items():
            known[key] = replace(known[key], scores=scores)
        return known

    def find(self, keys: Keys) -> dict[int, Answer]:
        """The known answers, by index of the prompt."""
        if not self.has_answers:
            return {}
        return keys.find(self.get)

    @property
    def claims(self) -> Claims | None:
        """Who is asking what; None in memory, which nobody shares, and where nothing is written."""
        if self.path is None or self.is_read_only:
            return None
        return Claims(self.connection, self._guard, self.clock)

    def put(
        self,
        answers: Iterable[tuple[bytes, Answer]],
        *,
        are_new: bool = True,
        facts: Sequence[Fact] = (),
        claims: Sequence[HeldClaim] = (),
    ) -> None:
        """Store the valid answers, atomically and durably. Raises sqlite3.Error.

        are_new: whether they count in `stored`, and are not there under another key. facts: how
        they came, and why others did not. claims: what is no longer asked.
        """
        answers = list(answers)
        rows = [
            (key, _storable(text), answer.prompt_tokens, answer.output_tokens)
            for key, answer in answers
            if (text := kept_text(answer)) is not None
        ]
        stored = {row[0] for row in rows}
        scores = [
            (key, scores_as_json(answer.scores))
            for key, answer in answers
            if key in stored and answer.scores is not None
        ]
        if (rows or facts or claims) and not self.is_read_only:
            self.write(lambda: self._insert(rows, scores, facts, claims))
            self.stored += len(rows) if are_new else 0

    @property
    def has_answers(self) -> bool:
        """Whether the ledger has any answers."""
        return bool(self._read("SELECT EXISTS (SELECT 1 FROM answers)")[0][0])

    def write(self, act: Callable[[], Given]) -> Given:
        """Write through `connection`, all of it or nothing. Raises sqlite3.Error."""
        return transact(self.connection, self._guard, act)

    def close(self) -> None:
        """Close the file."""
        self.connection.close()

    def _read(self, sql: str, values: Sequence[bytes] = ()) -> list[Any]:
        with self._guard, self._readable():
            return patiently(lambda: self.connection.execute(sql, values).fetchall())

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise ConfigError(
                f"The ledger {self.path} cannot be read: {error}. Move the file away, or use "
                "another file."
            ) from error

    def _scores(self, keys: Sequence[bytes]) -> dict[bytes, dict[str, float]]:
        """The scores of some answers, by key."""
        if not keys or not self._read(_HAS_SCORES):
            return {}
        rows = self._of_keys("SELECT key, scores FROM scores", keys)
        return {key: scores_from_json(text) for key, text in rows}

    def _of_keys(self, select: str, keys: Sequence[bytes]) -> Iterator[Any]:
        """The rows of some keys."""
        for start in range(0, len(keys), _LOOK_UP_AT_ONCE):
            some = keys[start : start + _LOOK_UP_AT_ONCE]
            marks = ", ".join("?" * len(some))
            yield from self._read(f"{select} WHERE key IN ({marks})", some)

    def _insert(
        self,
        rows: list[tuple[Any, ...]],
        scores: list[tuple[bytes, str]],
        facts: Sequence[Fact],
        claims: Sequence[HeldClaim],
    ) -> None:
        self.connection.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", rows)
        if scores:
            self.connection.execute(_SCORES)
            self.connection.executemany("INSERT OR REPLACE INTO scores VALUES (?, ?)", scores)
        write_facts(self.connection, facts, self.run)
        give_back(self.connection, claims)


def _connect(address: str, *, is_uri: bool = False) -> sqlite3.Connection:
    return sqlite3.connect(
        address,
        timeout=BUSY_SECONDS,
        isolation_level="IMMEDIATE",
        check_same_thread=False,
        uri=is_uri,
    )


def _is_read_only(path: Path) -> bool:
    """Whether there is such a file, which cannot be written. SQLite has more files beside it."""
    by = os.access in os.supports_effective_ids
    may_write = (os.access(each, os.W_OK, effective_ids=by) for each in (path, path.parent))
    return path.is_file() and not all(may_write)


def open_to_read(path: Path) -> sqlite3.Connection:
    """A file, to be read alone."""
    address = f"{path.absolute().as_uri()}?mode=ro"
    connection = _connect(address, is_uri=True)
    try:
        connection.execute(_IS_THERE)
    except sqlite3.Error as error:  # others than this one come again when the file is read
        # In a folder in which SQLite cannot put its other files.
        if error.sqlite_errorcode & 0xFF in _NO_ROOM and path.is_file():
            connection.close()
            return _connect(f"{address}&immutable=1", is_uri=True)
    return connection


def _prepare(connection: Any, *, creates: bool) -> int:
    """Create the table if it does not exist. Returns the version of the file format."""
    if not creates:
        connection.execute(SELECT + " LIMIT 0")
        return int(connection.execute("PRAGMA user_version").fetchone()[0])
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    if mode == "delete":
        connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    if connection.execute(_IS_THERE).fetchone() is None:
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            # Another process may have created it in the meantime.
            if connection.execute(_IS_THERE).fetchone() is None:
                connection.execute(f"CREATE TABLE answers ({_COLUMNS}) WITHOUT ROWID")
                connection.execute(f"PRAGMA user_version = {FORMAT}")
    connection.execute(SELECT + " LIMIT 0")  # fails if the table has a different schema
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def stored_text(stored: str | bytes) -> str:
    """A text as it is read from the file: bytes are text with lone surrogates."""
    return stored.decode("utf-8", "surrogatepass") if isinstance(stored, bytes) else stored


def _storable(text: str) -> str | bytes:
    """Encode text with lone surrogates, which a tokenizer may produce and SQLite rejects."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text
