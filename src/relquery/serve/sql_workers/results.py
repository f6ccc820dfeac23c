"""Results of statements, as JSON and as Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from relquery.connection import Connection
from relquery.report import Report
from relquery.serve.values import plain, to_arrow, to_json
from relquery.sql.record import Recording, Sent
from relquery.sql.result import Result, RowError

_AT_ONCE = 1_000  # rows of a line


@dataclass(frozen=True, slots=True)
class Answered:
    """The result of a statement. types: of its columns, as DuckDB calls them. total: its rows,
    where only the first are answered.
    """

    result: Result
    types: tuple[str, ...]
    total: int | None = None

    @classmethod
    def of(cls, result: Result, connection: Connection, rows: int | None = None) -> Answered:
        """The types are read from the result's Arrow table. rows: that are answered at most."""
        total = None if rows is None else len(result)
        result = result.head(rows)
        empty = result.table.slice(0, 0)
        numbered = empty.rename_columns([f"c{at}" for at in range(empty.num_columns)])
        if not numbered.num_columns:
            return cls(result, (), total)
        types = connection.database.connection.from_arrow(numbered).types
        return cls(result, tuple(map(str, types)), total)

    @property
    def columns(self) -> list[dict[str, str]]:
        """Names and types."""
        pairs = zip(self.result.columns, self.types, strict=True)
        return [{"name": name, "type": kind} for name, kind in pairs]

    def rows(self) -> Iterator[list[list[Any]]]:
        """The rows for JSON, some at a time."""
        table = self.result.table
        for start in range(0, table.num_rows, _AT_ONCE):
            part = Result(table.slice(start, _AT_ONCE), (), Report())
            yield [list(map(plain, row)) for row in part.plain()]

    def whole(self) -> bytes:
        """All of it as JSON."""
        found = {
            "columns": self.columns,
            "rows": [row for rows in self.rows() for row in rows],
            "report": self.report,
            "errors": self.errors,
        }
        return to_json(found | self.recorded)

    def lines(self) -> Iterator[dict[str, Any]]:
        """All of it as objects of a stream."""
        yield {"type": "columns", "columns": self.columns}
        for rows in self.rows():
            yield {"type": "rows", "rows": rows}
        yield {"type": "report", "report": self.report}
        if recorded := self.recorded:
            yield {"type": "recording"} | recorded
        yield {"type": "errors", "errors": self.errors}

    def arrow(self) -> bytes:
        """The rows as an Arrow IPC stream, whose schema has the report and the errors."""
        return to_arrow(self.result.table, report=self.report, errors=self.errors)

    @property
    def report(self) -> dict[str, Any]:
        """What it cost."""
        found: dict[str, Any] = plain(self.result.report.to_dict())
        return found

    @property
    def errors(self) -> list[dict[str, Any]]:
        """The missing values."""
        return [_error(each) for each in self.result.errors]

    @property
    def recorded(self) -> dict[str, Any]:
        """What was sent, and how many rows there are, if that was wanted."""
        recording = self.result.recording
        total = {} if self.total is None else {"total_rows": self.total}
        return total if recording is None else {"recording": list(_stages(recording))} | total


def _error(error: RowError) -> dict[str, Any]:
    found: dict[str, Any] = plain(asdict(error) | {"finish": error.finish.value})
    return found


def _stages(recording: Recording) -> Iterator[dict[str, Any]]:
    for name, stage in recording.stages.items():
        prompts = [_prompt(at, one) for at, one in sorted(stage.full.items())]
        yield {"stage": name, "sent": stage.sent, "prompts": prompts}


def _prompt(at: int, sent: Sent) -> dict[str, Any]:
    """A prompt with its tokens: reused, computed, and decoded for the answer.

    reused_characters: how much of the text the reused tokens are, about.
    """
    answer = sent.answer
    return {
        "index": at,
        "text": sent.text,
        "answer": answer.text,
        "error": answer.error,
        "reused": answer.cached_tokens,
        "computed": max(0, answer.prompt_tokens - answer.cached_tokens),
        "decoded": answer.output_tokens,
        "reused_characters": sent.reused,
    }
