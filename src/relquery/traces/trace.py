"""Traces: which relQueries arrive when; and workloads like those of paper 003, section 5.1."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import accumulate
from math import inf
from pathlib import Path
from typing import ClassVar, Literal, get_args

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError

from relquery.arrays import TokenIds
from relquery.errors import TableError


@dataclass(frozen=True, slots=True)
class HashedPrompt:
    """A prompt whose text is not known."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True, extra="forbid")

    tokens: int
    """The number of its tokens."""
    blocks: tuple[int, ...]
    """Numbers of its blocks of `block_size` tokens, the last of which may be shorter; an equal
    number means equal tokens."""
    block_size: int

    def __post_init__(self) -> None:
        room = len(self.blocks) * self.block_size
        if not (self.block_size > 0 and room - self.block_size < self.tokens <= room):
            raise TableError(
                f"A prompt of {self.tokens} tokens has {len(self.blocks)} blocks of "
                f"{self.block_size}; the last block must hold its last token."
            )
        if not all(0 <= block < 2**31 for block in self.blocks):
            raise TableError("Numbers of blocks must be from 0 to 2,147,483,647.")

    @property
    def token_ids(self) -> TokenIds:
        """(tokens,) ids that are equal where the tokens are."""
        blocks = np.array(self.blocks, dtype=np.int32)
        return np.repeat(blocks, self.block_size)[: self.tokens]


@dataclass(frozen=True, slots=True)
class TracedQuery:
    """One relQuery of a trace."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True, extra="forbid")

    arrival: float
    """Seconds since the trace began."""
    kind: str
    """Its type, e.g. "filter"."""
    table: str
    """The table of its rows."""
    instruction: str
    """The beginning of each prompt."""
    rows: tuple[str, ...]
    """How each prompt continues."""
    output_limit: int
    """The most tokens of an answer (max_tokens)."""
    outputs: tuple[int, ...]
    """The tokens of each answer, for simulation."""
    tenant: str = ""
    """The client."""
    hashed: tuple[HashedPrompt, ...] = ()
    """The prompt of each row, if the texts are not known; rows are empty."""

    def __post_init__(self) -> None:
        if self.hashed and len(self.hashed) != len(self.rows):
            raise TableError(
                f"There are {len(self.rows)} rows, but {len(self.hashed)} hashed prompts; the "
                "numbers must be equal."
            )
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


Row = Mapping[str, object]
Sampling = Literal["independent", "shared"]
"""Which rows of a table a relQuery reads. independent: its own random sample. shared: the first
rows of one sample that all relQueries over the table share, so the smaller of two relQueries reads
rows of the larger. The clients of paper 003 do this: each draws with the same seed."""
SAMPLINGS: tuple[Sampling, ...] = get_args(Sampling)


@dataclass(frozen=True, slots=True)
class QueryKind:
    """A type of relQuery: what is asked of each row, and how long answers are (section 5.1)."""

    kind: str
    output_limit: int
    """The most tokens of an answer."""
    question: str
    length: tuple[float, float]
    """Mean and standard deviation of an answer's tokens. The five below have 22 on average; Table 4
    reports 18 to 23. A label has two or three tokens including its end, a summary in twenty words
    about thirty, an open answer most of its limit."""
    columns: tuple[str, ...] = ()
    """The row's columns that are asked about; none for all."""


TASKS = (
    QueryKind(
        kind="filter",
        output_limit=5,
        question="Decide whether the following entry fits for children. Answer Yes or No.",
        length=(2, 0.5),
    ),
    QueryKind(
        kind="classify",
        output_limit=10,
        question="Say in which mood the following entry was written: Positive, Negative, or "
        "Neutral.",
        length=(3, 1),
    ),
    QueryKind(
        kind="rate",
        output_limit=5,
        question="Predict the rating from 1 to 5 for the following entry. Answer one digit.",
        length=(2, 0.5),
    ),
    QueryKind(
        kind="summarize",
        output_limit=50,
        question="Summarize the following entry in at most twenty words.",
        length=(30, 8),
    ),
    QueryKind(
        kind="open",
        output_limit=100,
        question="Who would like the following entry the most, and why? Explain shortly.",
        length=(75, 20),
    ),
)


def workload(
    tables: Mapping[str, Sequence[Row]],
    rate: float,
    *,
    count: int = 100,
    rows: tuple[int, int] = (1, 100),
    seed: int = 0,
    tasks: Sequence[QueryKind] | Mapping[str, Sequence[QueryKind]] = TASKS,
    sampling: Sampling = "independent",
) -> list[TracedQuery]:
    """RelQueries with Poisson arrivals, each a random task over random rows of a random table.

    rate: relQueries per second. rows: least and most rows of a relQuery, all sizes equally likely.
    No row occurs twice in one relQuery; from a smaller table it takes all rows. tasks: for all
    tables, or by table name. sampling: see Sampling; nothing else in the trace depends on it.
    """
    draw = random.Random(seed)
    arrivals = accumulate(draw.expovariate(rate) for _ in range(count))
    of_table = tasks if isinstance(tasks, Mapping) else dict.fromkeys(tables, tasks)
    shared = _samples(tables, seed) if sampling == "shared" else None
    return [_query(draw, arrival, tables, rows, of_table, shared) for arrival in arrivals]


def _samples(tables: Mapping[str, Sequence[Row]], seed: int) -> dict[str, list[int]]:
    """For each table, the numbers of all its rows in a random order."""
    return {
        name: random.Random(f"{seed} {name}").sample(range(len(table)), len(table))
        for name, table in tables.items()
    }


def _query(
    draw: random.Random,
    arrival: float,
    tables: Mapping[str, Sequence[Row]],
    rows: tuple[int, int],
    tasks: Mapping[str, Sequence[QueryKind]],
    shared: Mapping[str, Sequence[int]] | None,
) -> TracedQuery:
    name = draw.choice(sorted(tables))
    task, table = draw.choice(tasks[name]), tables[name]
    size = min(draw.randint(*rows), len(table))
    own = draw.sample(range(len(table)), size)  # always drawn, so that later draws stay the same
    chosen = [table[index] for index in (own if shared is None else shared[name][:size])]
    lengths = (round(draw.gauss(*task.length)) for _ in chosen)
    return TracedQuery(
        arrival=arrival,
        kind=task.kind,
        table=name,
        instruction=f"{task.question}\n",
        rows=tuple(f"{_text(row, task.columns)}\nAnswer:" for row in chosen),
        output_limit=task.output_limit,
        outputs=tuple(min(max(1, length), task.output_limit) for length in lengths),
    )


def _text(row: Row, columns: Sequence[str]) -> str:
    cells = ((name, row[name]) for name in columns or row)
    return "\n".join(f"{name}: {value}" for name, value in cells if value is not None)


def at_rate(queries: Iterable[TracedQuery], factor: float) -> Iterator[TracedQuery]:
    """The same relQueries, arriving `factor` times as fast."""
    return (replace(query, arrival=query.arrival / factor) for query in queries)
