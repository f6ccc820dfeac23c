"""A threshold for scores is chosen from rows with right answers."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
from sklearn.metrics import f1_score, precision_recall_curve

import relquery as rq
from relquery.connection import connect
from relquery.errors import ConfigError, QueryError
from relquery.evaluation.threshold import chosen
from relquery.prompt import Answer, Finish
from tests.sql.fakes import FakeBackend, Fields

QUERY = "SELECT id, AI_SCORE('x', said) AS score, truth FROM t"


def drawn(seed: int, rows: int = 80) -> tuple[list[float], list[bool]]:
    """Scores, with ties, that are higher where the answer is true, on average."""
    chance = np.random.default_rng(seed)
    right = chance.random(rows) < 0.3
    scores = np.clip(chance.normal(0.25 + 0.2 * right, 0.12), 0.01, 0.99).round(2)
    return scores.tolist(), right.tolist()


def likely(query: str, fields: Fields) -> Answer:
    yes = float(fields["said"])
    return Answer("Yes", Finish.STOP, scores={"Yes": log(yes), "No": log(1 - yes)})


@pytest.mark.parametrize("seed", range(4))
def test_the_best_f1_and_the_lowest_with_a_precision_are_those_of_scikit_learn(seed: int) -> None:
    scores, right = drawn(seed)
    precisions, recalls, values = precision_recall_curve(right, scores)
    best = chosen(scores, right, None)
    assert best is not None
    every = [f1_score(right, np.array(scores) >= value) for value in values]
    assert best.f1 == pytest.approx(max(every))
    assert f1_score(right, np.array(scores) >= best.value) == pytest.approx(best.f1)
    wanted = chosen(scores, right, 0.8)
    enough = recalls[:-1][precisions[:-1] >= 0.8]
    assert wanted is not None
    assert wanted.recall == pytest.approx(enough.max())
    assert wanted.precision >= 0.8
    assert chosen(scores, right, 0.8) == wanted, "the same rows give the same threshold"


def test_the_interval_has_the_best_threshold_and_shrinks_with_rows() -> None:
    widths = []
    for rows in (60, 2000):
        found = chosen(*drawn(1, rows), None)
        assert found is not None
        low, high = found.interval
        assert low <= found.value <= high
        assert found.expected_f1 == pytest.approx(found.f1, abs=0.15)
        widths.append(high - low)
    assert widths[1] < widths[0]


def test_scores_of_a_query_are_evaluated_at_the_threshold() -> None:
    scores, right = drawn(2)
    rows = {"id": range(len(right)), "said": list(map(str, scores)), "truth": right}
    with connect(FakeBackend(likely), ledger=None) as con:
        con.register("t", {name: list(values) for name, values in rows.items()})
        found = rq.evaluate(con, QUERY, "truth", key="id", prediction="score")
        precise = rq.evaluate(con, QUERY, "truth", key="id", prediction="score", precision=0.9)
        assert found.threshold is not None
        assert precise.threshold is not None
        said = np.array([score for _, score, _ in found.result.fetchall()])
        assert found.right == int(((said >= found.threshold.value) == np.array(right)).sum())
        assert f"Use it: AI_FILTER(..., threshold := {found.threshold.value!r})" in repr(found)
        assert precise.threshold.precision >= 0.9 > found.threshold.precision
        assert "precision of 0.9 or more" in repr(precise)
        kept = con.sql(
            f"SELECT AI_FILTER('x', said, threshold := {found.threshold.value!r}) FROM t"
        )
        assert [one for (one,) in kept.fetchall()] == (said >= found.threshold.value).tolist()
        assert found.compare(precise).rows == len(right)


def test_what_gives_no_threshold_is_refused() -> None:
    with connect(FakeBackend(likely), ledger=None) as con:
        con.register("t", {"said": ["0.2", "0.4"], "truth": [True, True]})
        query = "SELECT AI_SCORE('x', said) AS score, truth FROM t"
        with pytest.raises(QueryError, match="answers that are true and some that are false"):
            rq.evaluate(con, query, "truth")
        con.register("u", {"said": ["0.9", "0.4"], "truth": [False, True]})
        with pytest.raises(QueryError, match="none has a precision of"):
            rq.evaluate(con, query.replace("FROM t", "FROM u"), "truth", precision=0.9)
        with pytest.raises(ConfigError, match="precision is 2"):
            rq.evaluate(con, query, "truth", precision=2)
        with pytest.raises(ConfigError, match="precision is for a threshold"):
            rq.evaluate(con, "SELECT said, truth::VARCHAR AS truth FROM t", "truth", precision=0.9)
