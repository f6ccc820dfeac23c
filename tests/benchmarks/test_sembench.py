"""The stand-in reads what is sent, and results are compared as SemBench does."""

from __future__ import annotations

import pyarrow as pa
import pytest
from scipy.stats import spearmanr

from benchmarks.sembench.data import Scenario, spearman
from benchmarks.sembench.queries import SQL, GoldModel, Row
from relquery.connection import connect

GOOD, BAD, QUOTED = "All is\nwell.", "b: nothing to like", '"So" he says, "bad"'
ROWS: dict[str, Row] = {
    text: {"id": movie, "reviewId": at, "reviewText": text, "scoreSentiment": label,
           "originalScore": score}
    for at, (text, label, score, movie) in enumerate(
        [
            (GOOD, "POSITIVE", "4.5/5", "ant_man_and_the_wasp_quantumania"),
            (BAD, "NEGATIVE", "B", "ant_man_and_the_wasp_quantumania"),
            (QUOTED, "NEGATIVE", "1/4", "taken_3"),
        ]
    )
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Q1", [(0,)]),
        ("Q2", []),
        ("Q3", [(0,)]),
        ("Q4", [(0.0,)]),
        ("Q5", []),
        ("Q6", [(0, 1), (1, 0)]),
        ("Q7", [(0, 1), (1, 0)]),
        ("Q8", [("NEGATIVE", 1)]),
        ("Q9", [(0, 4), (1, 2)]),
        ("Q10", [("ant_man_and_the_wasp_quantumania", 3.0), ("taken_3", 1.0)]),
    ],
)
def test_the_ten_queries_are_answered_by_gold_labels(name: str, found: list[object]) -> None:
    model = GoldModel(ROWS, len)
    with connect(model, progress=False, form="text") as connection:
        connection.register("Reviews", pa.Table.from_pylist(list(ROWS.values())))
        rows = connection.sql(SQL[name]).fetchall()

    assert sorted(row[-2:] if name in ("Q6", "Q7") else row for row in rows) == found
    assert (model.characters > 0) == (model.calls > 0)


def test_results_are_compared_as_bags_and_scores_by_rank() -> None:
    pairs = pa.table({"id": ["m"] * 3, "a": [1, 1, 2], "b": [2, 2, 1]})
    scenario = Scenario(pairs, pairs, {"Q7": pairs, "Q3": pa.table({"n": [8]})}, {})

    assert scenario.quality("Q7", pairs) == ("F1", 1.0)
    assert scenario.quality("Q7", pairs.slice(1))[1] == pytest.approx(0.8)
    assert scenario.quality("Q3", pa.table({"n": [6]})) == ("relative error", 0.25)
    gold, found = dict(enumerate([1.0, 2, 2, None, 5])), dict(enumerate([2.0, 2, 1, 9, 3]))
    expected = spearmanr([1, 2, 2, 5], [2, 2, 1, 3]).statistic
    assert spearman(gold, found) == pytest.approx(expected)
