"""Several filters cost little more calls than in the best order."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations
from zlib import crc32

import duckdb
import numpy as np
import pytest

import relquery as rq
from tests.data import data_path
from tests.sql.fakes import FakeBackend, Fields

CHANCE = {"nine of ten?": 90, "half?": 50, "one of ten?": 10}
Answers = Mapping[str, Mapping[str, bool]]
"""By question and text."""


def by_chance(texts: list[str]) -> Answers:
    return {
        question: {text: crc32(f"{question}{text}".encode()) % 100 < share for text in texts}
        for question, share in CHANCE.items()
    }


def over_the_best(texts: list[str], answers: Answers) -> list[float]:
    """The calls in each written order of the filters, over those of the best fixed order."""

    def answer(query: str, fields: Fields) -> str:
        return "Yes" if answers[query][fields["text"]] else "No"

    passed = np.array([[of[text] for text in texts] for of in answers.values()])
    orders = [*permutations(range(len(answers)))]
    best = min(
        sum(int(passed[list(order[:at])].all(axis=0).sum()) for at in range(len(order)))
        for order in orders
    )
    found = []
    for order in orders:
        backend = FakeBackend(answer)
        with rq.connect(backend, ledger=None) as connection:
            connection.register("t", [{"text": text} for text in texts])
            asks = (f"LLM('{[*answers][at]}', text) = 'Yes'" for at in order)
            kept = connection.sql(f"SELECT count(*) FROM t WHERE {' AND '.join(asks)}").fetchall()
        assert kept == [(int(passed.all(axis=0).sum()),)]
        found.append(len(backend.asked) / best)
    return found


def test_filters_by_chance_cost_what_the_best_order_does() -> None:
    texts = [f"row {number}" for number in range(600)]
    assert max(over_the_best(texts, by_chance(texts))) <= 1.1


@pytest.mark.long
@pytest.mark.data
@pytest.mark.parametrize(
    "wanted", ["Comedy Fresh Horror", "Drama Fresh Romance", "Kids Drama Fresh"]
)
def test_filters_over_movies_cost_at_most_a_tenth_over_the_best_order(wanted: str) -> None:
    source = data_path("movies/movies.parquet")
    rows = duckdb.execute(
        f"SELECT reviewcontent || ' ' || movieinfo AS t, any_value(genres), any_value(reviewtype) "
        f"FROM '{source}' WHERE reviewcontent <> '' GROUP BY t ORDER BY hash(t) LIMIT 1000"
    ).fetchall()
    answers = {
        word: {t: word in f"{kinds} {fresh}" for t, kinds, fresh in rows} for word in wanted.split()
    }
    assert max(over_the_best([t for t, *_ in rows], answers)) <= 1.1
