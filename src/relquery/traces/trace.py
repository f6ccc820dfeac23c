"""A trace: which relQueries arrive when, as JSON Lines with one relQuery per line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from math import inf
from pathlib import Path
from typing import ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from relquery.errors import TableError


@dataclass(frozen=True, slots=True)
class TracedQuery:
    """One relQuery of a trace.

    arrival: seconds since the trace began. kind: its type, e.g. "filter". table: the table of its
    rows. instruction: the beginning of each prompt. rows: how each prompt continues.
    output_limit: the most tokens of an answer (max_tokens). outputs: the tokens of each answer, for
    simulation. tenant: the client.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True, extra="forbid")

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
            raise TableError(
                f"There are {len(self.rows)} rows, but {len(self.outputs)} output lengths; the "
                "numbers must be equal."
            )
        if not all(1 <= output <= self.output_limit for output in self.outputs):
            raise TableError(f"Every output must have from 1 to {self.output_limit} tokens.")
        if not 0 <= self.arrival < inf:
            raise TableError(f"`arrival` is {self.arrival}; it must be finite and not negative.")

    @property
    def prompts(self) -> Iterator[str]:
        """The prompts, row by row."""
        return (self.instruction + row for row in self.rows)


def save(queries: Iterable[TracedQuery], path: Path) -> None:
    """Write a trace."""
    with path.open("w", encoding="utf-8") as file:
        for query in queries:
            file.write(json.dumps(asdict(query), ensure_ascii=False) + "\n")


def load(path: Path) -> list[TracedQuery]:
    """Read a trace, in order of arrival. Raises TableError with the number of a bad line."""
    queries = []
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    queries.append(_read(line, f"{path}, line {number}"))
    except (OSError, UnicodeDecodeError) as error:
        raise TableError(f"The trace {path} cannot be read: {error}.") from error
    return sorted(queries, key=lambda query: query.arrival)


_REMEDY = "Write traces with `relquery trace`."


@cache
def _adapter() -> TypeAdapter[TracedQuery]:
    return TypeAdapter(TracedQuery)


def _read(line: str, where: str) -> TracedQuery:
    try:
        return _adapter().validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        place = "".join(f"{step}: " for step in first["loc"])
        raise TableError(f"{where}: {place}{first['msg']}. {_REMEDY}") from error
    except TableError as error:
        raise TableError(f"{where}: {error} {_REMEDY}") from error
