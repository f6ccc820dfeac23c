"""Relations of two reviews that follow from a label of each, and such that do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.sembench.data import Scenario
from benchmarks.sembench.queries import GoldModel, Row
from relquery.connection import connect

REVIEWS = 120


@dataclass(frozen=True, slots=True)
class Relation:
    """What is asked about two reviews, and the label that is proposed for one."""

    name: str
    follows: bool
    question: str
    rule: str
    label: str
    label_of: Callable[[Row], str]
    holds: Callable[[Row, Row], bool]


def _genre(row: Row) -> str:
    return str(row["genre"]).split(",")[0]


RELATIONS = (
    Relation(
        "of the same genre",
        True,
        "Are these reviews of movies of the same genre?",
        "same",
        "the genre",
        _genre,
        lambda a, b: _genre(a) == _genre(b),
    ),
    Relation(
        "in different languages",
        True,
        "Were the movies of these reviews made in different languages?",
        "different",
        "the language",
        lambda row: str(row["originalLanguage"]),
        lambda a, b: bool(a["originalLanguage"] != b["originalLanguage"]),
    ),
    Relation(
        "about the same product",
        False,
        "Are these reviews about the same movie?",
        "same",
        "the genre",
        _genre,
        lambda a, b: bool(a["id"] == b["id"]),
    ),
    Relation(
        "written by the same person",
        False,
        "Are these reviews written by the same person?",
        "same",
        "whether a top critic wrote it",
        lambda row: "top critic" if row["isTopCritic"] else "other critic",
        lambda a, b: bool(a["criticName"] == b["criticName"]),
    ),
)
_LABEL = "Which one is it?"
_QUERY = """
SELECT a.number, b.number FROM reviews a JOIN reviews b ON a.number <> b.number
AND AI_FILTER('{}', a := a.reviewText, b := b.reviewText, pairs := ['symmetric', 'labels'])"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a relation."""

    relation: Relation
    is_by_labels: bool
    calls: int
    pairs: int
    """Calls without labels."""
    precision: float
    recall: float


def outcomes(scenario: Scenario, seed: int, count: Callable[[str], int]) -> Iterator[Outcome]:
    """Ask each relation of some reviews, drawn at random."""
    rows = _drawn(scenario, seed)
    by_text: dict[str, Row] = {row["reviewText"]: row for row in rows}
    texts = pa.table(
        {"number": range(len(rows)), "reviewText": [row["reviewText"] for row in rows]}
    )
    for relation in RELATIONS:
        labels = sorted({relation.label_of(row) for row in rows})
        proposal = {"yes": relation.rule, "question": _LABEL, "labels": labels, "pairs": []}
        answers: Mapping[str, Callable[..., str]] = {
            _LABEL: relation.label_of,
            relation.question: lambda a, b, holds=relation.holds: "Yes" if holds(a, b) else "No",
        }
        model = GoldModel(by_text, count, answers, {relation.question: proposal})
        with closing(connect(model, progress=False)) as connection:
            connection.register("reviews", texts)
            result = connection.sql(_QUERY.format(relation.question))
            pairs = set(result.fetchall())
            is_by_labels = "pairs by labels" in "".join(result.report.notes)
        every = range(len(rows))
        right = {
            (a, b) for a in every for b in every if a != b and relation.holds(rows[a], rows[b])
        }
        hits = len(pairs & right)
        yield Outcome(
            relation,
            is_by_labels,
            model.calls,
            len(rows) * (len(rows) - 1) // 2,
            hits / len(pairs),
            hits / len(right),
        )


def _drawn(scenario: Scenario, seed: int) -> list[dict[str, Any]]:
    movies = {row["id"]: row for row in scenario.movies.to_pylist()}
    rows = {row["reviewText"]: row for row in scenario.reviews.to_pylist() if row["id"] in movies}
    distinct = list(rows.values())
    drawn = np.random.default_rng(seed).permutation(len(distinct))[:REVIEWS]
    return [movies[distinct[place]["id"]] | distinct[place] for place in drawn]
