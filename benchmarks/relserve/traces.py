"""The workloads of `scripts/bench relserve`: five types of relQueries over each real table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from relquery.traces.trace import TASKS, QueryKind, Row, Sampling, TracedQuery, workload

ROWS = 10_000
"""Rows of a table that relQueries draw from, as in paper 003."""
EACH = (1, 100)
"""Least and most rows of a relQuery."""
PASSAGES = tuple(f"context{number}" for number in range(1, 6))
"""Passages retrieved for each question."""


@dataclass(frozen=True, slots=True)
class Source:
    """A table and its questions: for each kind of task, a question and its columns."""

    name: str
    file: str
    asks: dict[str, tuple[str, tuple[str, ...]]]

    @property
    def tasks(self) -> tuple[QueryKind, ...]:
        """The tasks of paper 003, with this table's questions."""
        return tuple(
            replace(task, question=question, columns=columns)
            for task in TASKS
            for question, columns in (self.asks[task.kind],)
        )


SOURCES = (
    Source(
        "ratebeer",
        "beer/ratebeer_10k.parquet",
        {
            "filter": (
                "Decide whether the review of a beer below speaks well of its taste. Answer only "
                "Yes or No, and nothing else.",
                ("beer/name", "review/text"),
            ),
            "classify": (
                "Say in which mood the review of a beer below was written. Answer only Positive, "
                "Negative or Neutral, and nothing else.",
                ("review/text",),
            ),
            "rate": (
                "Predict which rating from 1 to 5 the writer gave, from the brewer, the style and "
                "the review of the beer below. Answer with one digit and nothing else.",
                ("beer/name", "beer/brewerId", "beer/style", "beer/ABV", "review/text"),
            ),
            "summarize": (
                "Summarize the review of a beer below in at most twenty words, for people who have "
                "never tasted it.",
                ("beer/name", "beer/style", "review/text"),
            ),
            "open": (
                "Which people would like the beer below the most, and what should they eat with "
                "it? Explain it by the review.",
                ("beer/name", "beer/style", "beer/ABV", "review/text"),
            ),
        },
    ),
    Source(
        "movies",
        "movies/movies.parquet",
        {
            "filter": (
                "Decide whether the film with the synopsis below is suitable for children. Answer "
                "only Yes or No, and nothing else.",
                ("movieinfo",),
            ),
            "classify": (
                "Say in which mood the review of a film below was written. Answer only Positive, "
                "Negative or Neutral, and nothing else.",
                ("reviewcontent",),
            ),
            "rate": (
                "Predict which rating from 1 to 5 the reviewer gave to the film below. Answer with "
                "one digit and nothing else.",
                ("movieinfo", "reviewcontent"),
            ),
            "summarize": (
                "Summarize the review of the film below in at most twenty words.",
                ("movieinfo", "reviewcontent"),
            ),
            "open": (
                "Which audience would like the film below the most, and why? Explain it by the "
                "synopsis.",
                ("movieinfo", "genres"),
            ),
        },
    ),
    Source(
        "posts",
        "bird/posts_comments.parquet",
        {
            "filter": (
                "Decide whether the comment below is friendly. Answer only Yes or No.",
                ("Text",),
            ),
            "classify": (
                "Say in which mood the comment below was written. Answer only Positive, Negative "
                "or Neutral, and nothing else.",
                ("Text",),
            ),
            "rate": (
                "Rate from 1 to 5 how much the comment helps with the post below. Answer with one "
                "digit and nothing else.",
                ("Body", "Text"),
            ),
            "summarize": ("Summarize the post below in at most twenty words.", ("Body",)),
            "open": (
                "What should the writer of the post below do next, given the comment? Explain it.",
                ("Body", "Text"),
            ),
        },
    ),
    Source(
        "contributions",
        "contributions/contributions.csv",
        {
            "filter": (
                "Decide whether the giver below works in health care. Answer only Yes or No, and "
                "nothing else.",
                ("EMPLOYER", "OCCUPATION"),
            ),
            "classify": (
                "Say in which branch the giver below works. Answer with one word.",
                ("NAME", "ENTITY_TP", "EMPLOYER", "OCCUPATION"),
            ),
            "rate": (
                "Rate from 1 to 5 how unusual the gift below is. Answer with one digit and nothing "
                "else.",
                ("CITY", "STATE", "OCCUPATION", "TRANSACTION_AMT"),
            ),
            "summarize": (
                "Say in at most twenty words who gave what to whom, and when.",
                ("NAME", "CITY", "STATE", "EMPLOYER", "TRANSACTION_DT", "TRANSACTION_AMT"),
            ),
            "open": (
                "What else could the giver below be interested in, and why? Explain it.",
                ("NAME", "CITY", "STATE", "EMPLOYER", "OCCUPATION"),
            ),
        },
    ),
    Source(
        "squad",
        "squad/squad_rag5.parquet",
        {
            "filter": (
                "Decide whether the passages below answer the question. Answer only Yes or No, and "
                "nothing else.",
                ("question", *PASSAGES),
            ),
            "classify": (
                "Say which kind of thing the question below asks for: a person, a place, a time, a "
                "number or another. Answer with one word.",
                ("question",),
            ),
            "rate": (
                "Rate from 1 to 5 how well the passage helps with the question below. Answer with "
                "one digit and nothing else.",
                ("question", "context1"),
            ),
            "summarize": (
                "Summarize the passage below in at most twenty words.",
                ("context1",),
            ),
            "open": (
                "Answer the question below from the passages, and explain which of them say so.",
                ("question", *PASSAGES),
            ),
        },
    ),
)


def present(folder: Path) -> list[Source]:
    """The sources whose files exist."""
    return [source for source in SOURCES if (folder / source.file).exists()]


@cache
def read_rows(source_file: str, folder: Path) -> list[Row]:
    """The first rows of a table."""
    path = folder / source_file
    table: pa.Table = pa_csv.read_csv(path) if path.suffix == ".csv" else pq.read_table(path)
    rows: list[Row] = table.slice(0, ROWS).to_pylist()
    return rows


def trace(
    source: Source, folder: Path, *, count: int, seed: int, sampling: Sampling
) -> list[TracedQuery]:
    """RelQueries over a table, one per second on average."""
    rows = {source.name: read_rows(source.file, folder)}
    tasks = {source.name: source.tasks}
    return workload(rows, 1.0, count=count, rows=EACH, seed=seed, tasks=tasks, sampling=sampling)
