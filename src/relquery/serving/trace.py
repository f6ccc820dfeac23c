"""A trace: which relQueries arrive when, as JSON Lines, one relQuery a line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from relquery.errors import TableError


@dataclass(frozen=True, slots=True)
class TracedQuery:
    """One relQuery of a trace.

    arrival: seconds since the trace began. kind: its type, e.g. "filter". table: where its rows
    are from. instruction: what each prompt begins with, and rows: how each goes on.
    output_limit: tokens that an answer may have (max_tokens), and outputs: that each has, for
    simulation. tenant: who asks.
    """

    arrival: float
    kind: str
    table: str
    instruction: str
    rows: tuple[str, ...]
    output_limit: int
    outputs: tuple[int, ...]
    tenant: str = ""

    def __post_init__(self) -> None:
        if len(self.rows) != len(self.outputs):
            raise TableError(f"{len(self.rows)} rows, but {len(self.outputs)} output lengths.")
        if not all(1 <= output <= self.output_limit for output in self.outputs):
            raise TableError(f"An output is not within 1 to {self.output_limit} tokens.")
        if self.arrival < 0:
            raise TableError(f"It arrives at {self.arrival} s, before the trace begins.")

    @property
    def prompts(self) -> Iterator[str]:
        """What is asked, row by row."""
        return (self.instruction + row for row in self.rows)


def save(queries: Iterable[TracedQuery], path: Path) -> None:
    """Write a trace."""
    with path.open("w", encoding="utf-8") as file:
        for query in queries:
            file.write(json.dumps(asdict(query), ensure_ascii=False) + "\n")


def load(path: Path) -> list[TracedQuery]:
    """Read a trace, in order of arrival. Raises TableError with the line that is wrong."""
    queries = []
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    queries.append(_read(line, f"{path}, line {number}"))
    except (OSError, UnicodeDecodeError) as error:
        raise TableError(f"The trace {path} cannot be read: {error}.") from error
    return sorted(queries, key=lambda query: query.arrival)


def _read(line: str, where: str) -> TracedQuery:
    try:
        fields: dict[str, Any] = json.loads(line)
        lists = {name: tuple(fields[name]) for name in ("rows", "outputs")}
        return TracedQuery(**{**fields, **lists})
    except (ValueError, TypeError, KeyError) as error:
        raise TableError(
            f"{where} is no relQuery: {error}. `relquery trace` makes such files."
        ) from error
    except TableError as error:
        raise TableError(f"{where}: {error}") from error
