"""Answers that were given before, in SQLite, addressed by what was asked."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

from relquery.errors import ConfigError
from relquery.prompt import Answer, Compared, Finish, Prompt, Sampling, Span

_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS answers (key BLOB PRIMARY KEY, text TEXT NOT NULL, "
    "prompt_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL) WITHOUT ROWID"
)
_LOOK_UP_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Keys:
    """Where the answers to some prompts are, one for each.

    whole: of whole answers. decided: of those that ended when they could be none of the texts that
    they are compared with; empty where answers are read.
    """

    whole: list[bytes]
    decided: list[bytes]

    @classmethod
    def of(cls, model: str, prompts: Sequence[Prompt], sampling: Sampling) -> Keys:
        """For prompts to a model, asked with this sampling."""
        if not isinstance(sampling, Compared):
            return cls(answer_keys(model, prompts, sampling), [])
        whole = answer_keys(model, prompts, sampling.whole)
        return cls(whole, answer_keys(model, prompts, sampling))

    def place(self, index: int, answer: Answer) -> bytes:
        """The key that an answer is stored under."""
        return (self.decided if answer.finish is Finish.DECIDED else self.whole)[index]


@dataclass(frozen=True, slots=True)
class Ledger:
    """A store of answers to questions that have one answer: whole ones, and beginnings that
    decide. Not for several threads."""

    connection: Any

    @classmethod
    def open(cls, path: str | Path = ":memory:") -> Ledger:
        """Open or create a store. Raises ConfigError if the file is no such store."""
        connection = None
        try:
            connection = sqlite3.connect(path, check_same_thread=False)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(_SCHEMA)
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            raise ConfigError(
                f"The ledger {path} cannot be opened: {error}. Give the path of a file that "
                "relquery wrote, or of a new one."
            ) from error
        return cls(connection)

    def get(self, keys: Sequence[bytes]) -> dict[bytes, Answer]:
        """The answers that are known, by key."""
        known: dict[bytes, Answer] = {}
        for start in range(0, len(keys), _LOOK_UP_AT_ONCE):
            some = keys[start : start + _LOOK_UP_AT_ONCE]
            marks = ", ".join("?" * len(some))
            rows = self.connection.execute(
                f"SELECT key, text, prompt_tokens, output_tokens FROM answers "
                f"WHERE key IN ({marks})",
                some,
            )
            for key, text, prompt_tokens, output_tokens in rows:
                known[key] = Answer(
                    text.decode("utf-8", "surrogatepass") if isinstance(text, bytes) else text,
                    Finish.STOP,
                    prompt_tokens=prompt_tokens,
                    output_tokens=output_tokens,
                    attempts=0,
                )
        return known

    def find(self, keys: Keys) -> dict[int, Answer]:
        """The answers that are known, by index of the prompt."""
        whole, decided = self.get(keys.whole), self.get(keys.decided)
        known = {index: whole[key] for index, key in enumerate(keys.whole) if key in whole}
        for index, key in enumerate(keys.decided):
            if key in decided and index not in known:
                known[index] = replace(decided[key], finish=Finish.DECIDED)
        return known

    def put(self, answers: Iterable[tuple[bytes, Answer]]) -> None:
        """Store those of these that are values, at once and for good."""
        rows = [
            (key, _storable(answer.text), answer.prompt_tokens, answer.output_tokens)
            for key, answer in answers
            if answer.finish in (Finish.STOP, Finish.DECIDED)
            and answer.error is None
            and answer.text is not None
        ]
        with self.connection:
            self.connection.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", rows)

    @property
    def has_answers(self) -> bool:
        """Whether anything is known."""
        found = self.connection.execute("SELECT EXISTS (SELECT 1 FROM answers)").fetchone()
        return bool(found[0])

    def close(self) -> None:
        """Close the file."""
        self.connection.close()


def has_one_answer(sampling: Sampling) -> bool:
    """Whether asking again would give the same answer."""
    return sampling.temperature == 0 or sampling.seed is not None


def answer_keys(model: str, prompts: Iterable[Prompt], sampling: Sampling) -> list[bytes]:
    """One key per prompt: a hash of the model, the sampling and every span."""
    start = hashlib.sha256(repr((model, astuple(sampling))).encode())
    written: dict[int, tuple[Span, bytes]] = {}
    keys = []
    for prompt in prompts:
        digest = start.copy()
        for span in prompt:
            # Spans of equal cells are one object, so each is written once; the tuple keeps it
            # alive, since an id is only unique among living objects.
            if (known := written.get(id(span))) is None:
                known = written[id(span)] = (span, _written(span))
            digest.update(known[1])
        keys.append(digest.digest())
    return keys


def _written(span: Span) -> bytes:
    content = span.content if isinstance(span.content, str) else repr(span.content)
    kind = type(span.content).__name__
    data = content.encode("utf-8", "surrogatepass")
    begins = "message " if span.begins else ""
    head = f"{begins}{span.role.value} {span.reuse.value} {span.position} {kind} {len(data)} "
    return head.encode() + data


def _storable(text: str) -> str | bytes:
    """SQLite takes no lone surrogates in text, which a tokenizer may leave behind."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text
