"""Real tables with right answers: yes or no for each row.

The questions about beer, movies, posts and pdmx are those of paper 000 (appendix C) without what
they say about the form of answers, which a form of prompts says itself. Its authors labelled 100
rows of each by hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

ROW, GOLD = "row_number", "is_yes"
"""Columns of a sample: the row's number in its file, and whether the right answer is yes."""
_PAIRS = 1_000  # of which a sample is drawn
_OPTIONS = pa_csv.ParseOptions(newlines_in_values=True)


@dataclass(frozen=True, slots=True)
class Dataset:
    """A table with right answers."""

    name: str
    file: str
    """Its place in the folder of real tables."""
    question: str
    fields: tuple[str, ...]
    """What a call is given of a row, in SQL."""
    gold: str
    """The column of right answers."""
    yes: str
    """The value in it that means yes, in capital letters."""
    rows: int
    """How many rows are asked about at most."""

    @property
    def has_order(self) -> bool:
        """Whether there is an order of fields."""
        return len(self.fields) > 1


DATASETS = (
    Dataset(
        "sembench",
        "sembench/Reviews.csv",
        "Is the review positive?",
        ("review := reviewText",),
        "scoreSentiment",
        "POSITIVE",
        400,
    ),
    Dataset(
        "stretto",
        "stretto/reviews_1000.csv",
        "Is the review positive?",
        ("review := reviewtext",),
        "scoresentiment",
        "POSITIVE",
        250,
    ),
    Dataset(
        "beer",
        "beer/sample100_labelled.csv",
        "Does this beer have European origin?",
        (
            '"review/profileName"',
            '"review/time"',
            '"review/overall"',
            '"review/taste"',
            '"review/palate"',
            '"review/appearance"',
            '"beer/name"',
            '"beer/style"',
        ),
        "manual_labels",
        "YES",
        100,
    ),
    Dataset(
        "movies",
        "movies/sample100_labelled.csv",
        "Would the movie be suitable for kids?",
        (
            "reviewcontent",
            "reviewtype",
            "topcritic",
            "rottentomatoeslink",
            "movietitle",
            "movieinfo",
            "genres",
            "productioncompany",
        ),
        "manual_labels",
        "YES",
        100,
    ),
    Dataset(
        "posts",
        "bird/sample100_labelled.csv",
        "Is the post related to statistics?",
        ("Text", "PostId", "PostDate", "Body := left(Body, 600)"),
        "manual_labels",
        "YES",
        100,
    ),
    Dataset(
        "pdmx",
        "pdmx/sample100_labelled.csv",
        "Does any of the song information reference a specific individual?",
        (
            "songname",
            "title",
            "subtitle",
            "artistname",
            "composername",
            "publisher",
            "genres",
            "groups",
            "tags",
            "tracks",
            "license",
            "version",
        ),
        "manual_labels",
        "YES",
        100,
    ),
    Dataset(
        "squad",
        "squad/squad_meta.csv",
        "Does the passage answer the question?",
        ("question", "passage"),
        "answered",
        "YES",
        100,
    ),
)


def read(dataset: Dataset, folder: Path, rows: int, seed: int) -> pa.Table | None:
    """At most so many rows, drawn at random and in the file's order, with ROW and GOLD.

    None if the file is absent.
    """
    if not (folder / dataset.file).exists():
        return None
    table = (
        _pairs(folder / dataset.file, seed) if dataset.name == "squad" else _csv(folder, dataset)
    )
    drawn = np.random.default_rng(seed).permutation(table.num_rows)[:rows]
    numbers = np.sort(drawn)
    gold = [str(value).upper() == dataset.yes for value in table[dataset.gold].to_pylist()]
    columns = {ROW: pa.array(range(table.num_rows)), GOLD: pa.array(gold)}
    for name, column in columns.items():
        table = table.append_column(name, column)
    return table.take(pa.array(numbers))


def _csv(folder: Path, dataset: Dataset) -> pa.Table:
    return pa_csv.read_csv(folder / dataset.file, parse_options=_OPTIONS)


def _pairs(file: Path, seed: int) -> pa.Table:
    """A question of SQuAD with a passage each: by turns the one that its answer is from, and the
    first of those retrieved for it in which the answer does not stand."""
    passages = pa_csv.read_csv(file.with_name("squad_contexts.csv"), parse_options=_OPTIONS)
    texts = dict(zip(passages["ctx_id"].to_pylist(), passages["context"].to_pylist(), strict=True))
    asked = pa_csv.read_csv(file, parse_options=_OPTIONS)
    retrieved = pq.read_table(file.with_name("squad_rag5.parquet"))  # the same rows
    rows = [
        given | texts
        for given, texts in zip(asked.to_pylist(), retrieved.to_pylist(), strict=True)
        if given["answer"]
    ]
    chosen = np.random.default_rng(seed).permutation(len(rows))[:_PAIRS]
    return pa.Table.from_pylist(list(_paired([rows[index] for index in chosen], texts)))


def _paired(rows: list[dict[str, Any]], texts: dict[int, str]) -> Iterator[dict[str, str]]:
    for number, row in enumerate(rows):
        answer = str(row["answer"]).lower()
        retrieved = (row[f"context{place}"] for place in range(1, 6))
        other = next((text for text in retrieved if answer not in text.lower()), None)
        is_answered = number % 2 == 0
        passage = texts[row["gold_context"]] if is_answered else other
        if passage is not None:
            answered = "YES" if is_answered else "NO"
            yield {"question": row["question"], "passage": passage, "answered": answered}
