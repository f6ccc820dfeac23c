"""Answers of a batch put back in the order of the table."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from relquery.arrays import Int64s
from relquery.backends.wires.anthropic import AnthropicMessages
from relquery.backends.wires.openai import OpenAIChat
from relquery.backends.wires.wire import GARBLED, Json, Wire
from relquery.errors import PartialResultWarning, TableError, warn
from relquery.reordering.prompts.prompts import TableSource, read_id

_READERS = {"result": AnthropicMessages(""), "response": OpenAIChat(""), "error": OpenAIChat("")}
"""What reads a line, by a field that it has."""


class RowReply(NamedTuple):
    """custom_id: as in the line. text: the answer; None if there is only an error."""

    custom_id: object
    text: str | None
    error: str | None


class SentRequest(NamedTuple):
    """A line of a file that was sent to the provider, not of one that came back."""

    custom_id: object


def read_reply(line: bytes) -> RowReply | SentRequest | str:
    """A line of OpenAI's or Anthropic's results; a text says what is wrong with other lines.

    A request of a batch is told from lines that are neither.
    """
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return "not JSON"
    if not isinstance(said, dict) or "custom_id" not in said:
        return "no custom_id"
    reader = next((wire for name, wire in _READERS.items() if name in said), None)
    if reader is not None:
        return _read(said, reader)
    if "params" in said or "body" in said:
        return SentRequest(said["custom_id"])
    return "not a result of a batch, as it has neither 'result' nor 'response'"


def _read(line: Json, wire: Wire) -> RowReply:
    try:
        result = wire.result(line)
    except GARBLED:
        return RowReply(line["custom_id"], None, "The line is not a result of a batch.")
    if result.reply is None:
        return RowReply(result.custom, None, None if result.error is None else result.error.words)
    text, _, problem = result.reply.ending()
    return RowReply(result.custom, None if problem else text, problem)


NO_RESULT = "There is no result for this row."
CHANGED = "This row has changed since the batch was written."
_SHOWN = 5  # rows or lines that a message lists


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Answers:
    """The answers to a table's prompts."""

    values: pa.Array
    """(n,), the answer of each row in the order of the table; NULL if it has none."""
    errors: dict[int, str]
    """The reason why a row has no answer, by row."""
    problems: tuple[str, ...] = ()
    """Other faults of the files, and where they are."""

    @property
    def failed(self) -> Int64s:
        """Rows without an answer, ascending. Give them to `write_batch` as `rows` to ask again."""
        return np.array(sorted(self.errors), np.int64)

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        summary = f"{len(self) - len(self.errors):,} of {len(self):,} rows have an answer"
        count = len(self.problems)
        more = f", {count} {'problem' if count == 1 else 'problems'}" if count else ""
        return f"<Answers: {summary}{more}>"

    def __str__(self) -> str:
        return self.summary("Send these rows again: write_batch(..., rows=answers.failed).")

    def summary(self, remedy: str) -> str:
        """What was found. remedy: how to send rows without an answer again."""
        lines = [f"{len(self) - len(self.errors):,} of {len(self):,} rows have an answer."]
        missing = [row for row, error in self.errors.items() if error == NO_RESULT]
        if missing:
            lines.append(
                f"No result for {_rows(missing)}. If the batch has more result files, read all of "
                "them together."
            )
        others = [(row, error) for row, error in self.errors.items() if error != NO_RESULT]
        lines += [f"Row {row}: {error}" for row, error in others[:_SHOWN]]
        if len(others) > _SHOWN:
            more = len(others) - _SHOWN
            failed = (
                "row failed; `errors` has it." if more == 1 else "rows failed; `errors` has them."
            )
            lines.append(f"{more:,} more {failed}")
        if self.errors:
            lines.append(remedy)
        return "\n".join([*lines, *self.problems])


def read_answers(source: TableSource, paths: Iterable[Path]) -> Answers:
    """The answers in result files, in any order. See Schedule.read_answers."""
    lines = _Found(source.count, [*source.digests(np.arange(source.count))])
    for path in paths:
        lines.start()
        for number, line in _lines(path):
            lines.add(read_reply(line), f"{path.name}, line {number}")
        if lines.holds_only_requests():
            raise TableError(
                f"{path.name} holds requests, not results. Give the file that the provider "
                "returned."
            )
    answers = lines.answers()
    if answers.errors or answers.problems:
        warn(str(answers), PartialResultWarning)
    return answers


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank, with their numbers from 1. Raises TableError."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line
    except OSError as error:
        raise TableError(
            f"{path} cannot be read: {error.strerror}. Give the result files of the batch."
        ) from error


@dataclass(slots=True)
class _Found:
    """The findings in the lines read so far.

    digests: of each row of the table. lines, requests: how many the present file has. here:
    rows with a result in the present file. A failure in one file and an answer in another is
    fine: the row was sent again.
    """

    count: int
    digests: Sequence[str]
    texts: dict[int, str] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    lines: int = 0
    requests: int = 0
    here: set[int] = field(default_factory=set)
    problems: defaultdict[str, list[tuple[str, object]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def start(self) -> None:
        """Begin a file."""
        self.lines = self.requests = 0
        self.here.clear()

    def holds_only_requests(self) -> bool:
        """Whether the present file is one that was sent, not one that came back."""
        return 0 < self.lines == self.requests

    def add(self, reply: RowReply | SentRequest | str, place: str) -> None:
        """One line."""
        self.lines += 1
        if isinstance(reply, SentRequest):
            self.requests += 1
            reply = "a request, not a result"
        if isinstance(reply, str):
            self.problems["broken"].append((place, reply))
            return
        known = read_id(reply.custom_id)
        if known is None or known[0] >= self.count:
            self.problems["foreign"].append((place, repr(reply.custom_id)))
            return
        row, digest = known
        if self.digests[row] != digest:
            self.problems["changed"].append((place, row))
            return
        first = self.texts.get(row)
        if first is not None and reply.text not in (None, first):
            self.problems["differing"].append((place, row))
        elif row in self.here or (first is not None and reply.text is not None):
            self.problems["again"].append((place, row))
        self.here.add(row)
        if reply.text is None:
            self.errors[row] = reply.error or NO_RESULT
        else:
            self.texts.setdefault(row, reply.text)

    def answers(self) -> Answers:
        """Every row once: its first answer, or why it has none."""
        values = pa.array([self.texts.get(row) for row in range(self.count)], pa.large_string())
        lost = [row for row in range(self.count) if row not in self.texts]
        changed = {row for _, row in self.problems["changed"]}
        errors = {
            row: self.errors.get(row, CHANGED if row in changed else NO_RESULT) for row in lost
        }
        return Answers(values, errors, tuple(self._problems()))

    def _problems(self) -> Iterator[str]:
        for kind, (singular, several, remedy) in _PROBLEMS.items():
            if rows := self.problems[kind]:
                what, subject = (singular, "It is") if len(rows) == 1 else (several, "They are")
                yield f"{len(rows):,} {what}: {_listed(rows)}. {remedy.format(subject)}"


_COLUMNS = "since the batch was written (cells, or the names, number or order of columns)"
_PROBLEMS = {
    "differing": (
        "answer differs from an earlier answer to the same row",
        "answers differ from an earlier answer to the same row",
        "The earlier answer is kept. Leave out the files that you do not want.",
    ),
    "again": (
        "result for a row that already has one",
        "results for rows that already have one",
        "The first answer is kept. Give each file once.",
    ),
    "changed": (
        f"result for a row that has changed {_COLUMNS}",
        f"results for rows that have changed {_COLUMNS}",
        "{} ignored. Use the table that the batch was written from, or send these rows again.",
    ),
    "foreign": (
        "result with an id that no row of this table has",
        "results with an id that no row of this table has",
        "Give the result files of this table.",
    ),
    "broken": ("line could not be read", "lines could not be read", "Download the file again."),
}
"""What is wrong with lines of result files: of one, of several, and what to do."""


def _listed(found: Sequence[tuple[str, object]]) -> str:
    shown = [
        f"row {what} ({place})" if isinstance(what, int) else f"{what} ({place})"
        for place, what in found[:_SHOWN]
    ]
    more = f" and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
    return ", ".join(shown) + more


def _rows(rows: Sequence[int]) -> str:
    shown = ", ".join(map(str, rows[:_SHOWN]))
    if len(rows) > _SHOWN:
        return f"{len(rows):,} rows: {shown} and {len(rows) - _SHOWN:,} more"
    return f"row{'' if len(rows) == 1 else 's'} {shown}"
