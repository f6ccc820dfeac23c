"""Short prompts from real tables, each by the number of its row."""

from __future__ import annotations

import csv
from typing import Any, NamedTuple

from pyarrow import parquet

from tests.data import data_path

LONGEST = 240
"""Characters of a cell in a prompt."""


class Source(NamedTuple):
    """A column of a real table, and what is asked about its cells."""

    file: str
    column: str
    question: str


SOURCES = (
    Source("movies/movies.parquet", "reviewcontent", "Is this review positive or negative?"),
    Source("beer/beer.csv", "beer/name", "Which kind of beer could this be?"),
    Source("squad/squad_rag5.parquet", "question", "Answer in one sentence."),
    Source("bird/posts_comments.parquet", "Text", "What is this comment about?"),
)


class Row(NamedTuple):
    """A cell: of which source, its row from 0 on, and its text."""

    source: int
    row: int
    text: str

    @property
    def prompt(self) -> str:
        return f"{SOURCES[self.source].question}\n{self.text}"


def rows(count: int) -> list[Row]:
    """So many rows, as many of each source; of a table those that are evenly spread over it."""
    return [row for source in range(len(SOURCES)) for row in _of(source, count // len(SOURCES))]


def _of(number: int, count: int) -> list[Row]:
    values = _column(SOURCES[number])
    chosen = range(0, len(values), len(values) // count)[:count]
    return [Row(number, row, str(values[row] or "nothing")[:LONGEST]) for row in chosen]


def _column(source: Source) -> list[Any]:
    file = data_path(source.file)
    if file.suffix == ".csv":
        with file.open(encoding="utf-8", newline="") as lines:
            return [line[source.column] for line in csv.DictReader(lines)]
    return list(parquet.read_table(file, columns=[source.column])[source.column].to_pylist())


def sentences(count: int) -> list[str]:
    """Questions of SQuAD."""
    return [row.text for row in _of(2, count)]
