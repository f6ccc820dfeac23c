"""The eleven tasks, their rows, and the right value of each row."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from benchmarks.peers import model
from benchmarks.peers.programs import questions
from benchmarks.peers.provider import Row, TableProvider, Trouble, ends_badly

FILE = "movies/movies.parquet"
COLUMNS = ("reviewcontent", "movietitle", "movieinfo")
USUAL, REASONING = "gpt-4o-mini", "gpt-5-mini"
"""Names that a client may know: the second as that of a reasoning model."""
GROWTH = 10
"""A table grows by one row in so many."""

QUESTIONS = {
    "map": questions.MAP,
    "duplicates": questions.DUPLICATES,
    "filter": questions.FILTER,
    "classify": questions.CLASSIFY,
    "extract": "",
    "groups": questions.GROUPS,
}


class Course(Enum):
    """How a task goes.

    ONCE: one run. KILLED: the process is killed when half of the calls have come, and started
    again. GROWN: asked once before; then a tenth more rows, and then the same from another address.
    """

    ONCE = "once"
    KILLED = "killed"
    GROWN = "grown"


@dataclass(frozen=True, slots=True)
class Task:
    """kind: what is asked, a key of QUESTIONS. says: what it is, in the document."""

    name: str
    says: str
    kind: str = "map"
    trouble: Trouble = Trouble.NONE
    course: Course = Course.ONCE

    @property
    def model(self) -> str:
        """The model's name, as the provider knows it."""
        return REASONING if self.trouble is Trouble.REASONING else USUAL

    def provider(self, rows: Sequence[Row], path: str = "") -> TableProvider:
        """The stand-in that this task is asked of. path: of its API, before /v1."""
        column = "movieinfo" if self.kind == "duplicates" else "reviewcontent"
        question = QUESTIONS[self.kind]
        return TableProvider(self.kind, question, rows, column, self.trouble, path)


ASKED = (
    Task("map", "a sentence about each review"),
    Task("duplicates", "a sentence about the film of each review", "duplicates"),
    Task("filter", "a filter on two columns, then a sentence for each row that passes", "filter"),
    Task("classify", "one of three labels for each review", "classify"),
    Task("extract", "a struct of a label and an integer for each review", "extract"),
    Task("groups", "a summary of the reviews of each film", "groups"),
)
AGAIN = (
    Task("killed", "map; killed halfway, and started again", course=Course.KILLED),
    Task("grown", "map; again with a tenth more rows, and at another address", course=Course.GROWN),
)
TROUBLED = (
    Task("bad calls", "map; one call in ten fails at first", trouble=Trouble.CALLS),
    Task("bad rows", "map; three rows in a hundred have no answer", trouble=Trouble.ROWS),
    Task("reasoning", "map; no max_tokens, no temperature 0", trouble=Trouble.REASONING),
)


def right(task: Task, rows: Sequence[Row]) -> dict[str, Any]:
    """The values that a task must give, by row."""
    if task.kind == "groups":
        reviews: dict[str, list[str]] = defaultdict(list)
        for row in rows:
            reviews[row["movietitle"]].append(row["reviewcontent"])
        return {title: model.summary(texts) for title, texts in reviews.items()}
    of = _VALUES[task.kind]
    values = {row["id"]: of(row) for row in rows if not _has_no_answer(task, row)}
    return {row: value for row, value in values.items() if value is not None}


def _has_no_answer(task: Task, row: Row) -> bool:
    return task.trouble is Trouble.ROWS and ends_badly(row["reviewcontent"]) is not None


def _passing(row: Row) -> str | None:
    text = row["reviewcontent"]
    return model.sentence(questions.MAP, text) if model.recommends(text) else None


_VALUES: Mapping[str, Callable[[Row], Any]] = {
    "map": lambda row: model.sentence(questions.MAP, row["reviewcontent"]),
    "duplicates": lambda row: model.sentence(questions.DUPLICATES, row["movieinfo"]),
    "filter": _passing,
    "classify": lambda row: model.mood(row["reviewcontent"]),
    "extract": lambda row: model.extracted(row["reviewcontent"]),
}


def read(path: Path, count: int) -> list[Row]:
    """The first rows of Movies, each with an id."""
    rows_read = parquet.read_table(path, columns=list(COLUMNS)).slice(0, count).to_pylist()
    return [{"id": str(index), **row} for index, row in enumerate(rows_read)]


def write(rows: Sequence[Row], folder: Path) -> None:
    """As the programs read them."""
    folder.mkdir(parents=True)
    parquet.write_table(pa.Table.from_pylist(list(rows)), folder / "rows.parquet")
    (folder / "rows.json").write_text(json.dumps(list(rows)), encoding="utf-8")
