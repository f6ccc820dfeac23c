"""Workloads in the manner of paper 003, section 5.1: five types of relQueries over tables."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from relquery.serving.trace import TracedQuery

Row = Mapping[str, object]
SHARE = (2.9, 2.1)
"""Beta distribution of an answer's share of its limit: 0.58 on average, so that over the five
types answers have 20 tokens on average, as Table 4 tells (18 to 23)."""


@dataclass(frozen=True, slots=True)
class Task:
    """A type of relQuery: what is asked, and the tokens that an answer may have (section 5.1)."""

    kind: str
    output_limit: int
    question: str


TASKS = (
    Task("filter", 5, "Decide whether the following entry fits for children. Answer Yes or No."),
    Task(
        "classify",
        10,
        "Say in which mood the following entry was written: Positive, Negative, or Neutral.",
    ),
    Task("rate", 5, "Predict the rating from 1 to 5 for the following entry. Answer one digit."),
    Task("summarize", 50, "Summarize the following entry in at most twenty words."),
    Task("open", 100, "Who would like the following entry the most, and why? Explain shortly."),
)


def workload(
    tables: Mapping[str, Sequence[Row]],
    rate: float,
    *,
    count: int = 100,
    rows: tuple[int, int] = (1, 100),
    seed: int = 0,
    tasks: Sequence[Task] = TASKS,
) -> list[TracedQuery]:
    """RelQueries with Poisson arrivals, each a random task over random rows of a random table.

    rate: relQueries per second. rows: least and most of one relQuery, all sizes equally likely;
    they are drawn anew for each, without repetition as far as the table has so many.
    """
    draw = random.Random(seed)
    arrivals = accumulate(draw.expovariate(rate) for _ in range(count))
    return [_query(draw, arrival, tables, rows, tasks) for arrival in arrivals]


def _query(
    draw: random.Random,
    arrival: float,
    tables: Mapping[str, Sequence[Row]],
    rows: tuple[int, int],
    tasks: Sequence[Task],
) -> TracedQuery:
    name = draw.choice(sorted(tables))
    task, table = draw.choice(tasks), tables[name]
    size = min(draw.randint(*rows), len(table))
    chosen = [table[index] for index in draw.sample(range(len(table)), size)]
    outputs = (max(1, round(task.output_limit * draw.betavariate(*SHARE))) for _ in chosen)
    return TracedQuery(
        arrival=arrival,
        kind=task.kind,
        table=name,
        instruction=f"{task.question}\n",
        rows=tuple(f"{_text(row)}\nAnswer:" for row in chosen),
        output_limit=task.output_limit,
        outputs=tuple(outputs),
    )


def _text(row: Row) -> str:
    return "\n".join(f"{name}: {value}" for name, value in row.items() if value is not None)


def at_rate(queries: Iterable[TracedQuery], factor: float) -> Iterator[TracedQuery]:
    """The same relQueries, arriving `factor` times as fast."""
    for query in queries:
        yield TracedQuery(
            query.arrival / factor,
            query.kind,
            query.table,
            query.instruction,
            query.rows,
            query.output_limit,
            query.outputs,
            query.tenant,
        )
