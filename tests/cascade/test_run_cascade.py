"""A cascade keeps its promise for any scores, and asks less where scores are worth something."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

import relquery as rq
from relquery.arrays import Bools, Floats, Int64s
from relquery.cascade.sampling import SamplingPlan
from relquery.cascade.thresholds import OracleLabels, Side
from relquery.errors import ConfigError

CALLS = 1_000


class Oracle:
    """Knows the answers, and notes what it was asked."""

    def __init__(self, answers: Sequence[Any]) -> None:
        self.answers = answers
        self.asked: list[int] = []

    def __call__(self, calls: list[int]) -> list[Any]:
        self.asked += calls
        return [self.answers[call] for call in calls]


def graded(calls: int = CALLS, seed: int = 1) -> tuple[Floats, list[bool]]:
    """Calibrated scores with many sure ones, and the answers."""
    rng = np.random.default_rng(seed)
    scores = rng.beta(0.3, 0.3, calls)
    return scores, (rng.random(calls) < scores).tolist()


def shares(
    answers: Sequence[Any], truth: Sequence[bool], weights: Int64s | None = None
) -> tuple[float, float]:
    """(precision, recall) over rows."""
    said, true = np.array(answers, bool), np.array(truth)
    rows = np.ones(len(true)) if weights is None else weights
    right = float(rows[said & true].sum())
    return right / max(float(rows[said].sum()), 1.0), right / max(float(rows[true].sum()), 1.0)


def cliff(calls: int, allowed: int) -> tuple[Floats, list[bool]]:
    """The order in which a bound is tightest: sure rows that are right, then nothing but errors."""
    scores = np.linspace(0.999, 0.5, calls)
    return scores, (np.arange(calls) < calls - 2 * allowed).tolist()


def test_scores_that_tell_the_answer_save_most_calls() -> None:
    scores, truth = graded()
    oracle = Oracle(truth)

    result = rq.run_cascade(oracle, scores, precision=0.9, recall=0.9)

    precision, recall = shares(result.answers, truth)
    assert precision >= 0.9
    assert recall >= 0.9
    assert len(oracle.asked) == len(set(oracle.asked)) == result.report.asked < 0.5 * CALLS
    assert result.asked[oracle.asked].all()
    report = result.report
    assert report.accepted is not None
    assert report.rejected is not None
    assert report.asked + report.by_proxy == report.rows == CALLS
    assert report.accepted.threshold > report.rejected.threshold
    assert report.failure == pytest.approx(0.025), "each of two bounds has half of it"


def test_the_promise_holds_as_often_as_promised_where_the_bound_is_tightest() -> None:
    scores, right = cliff(CALLS, 100)

    kept = []
    for seed in range(200):
        result = rq.run_cascade(
            Oracle([1 if one else 2 for one in right]),
            scores,
            answers=[1] * CALLS,
            accuracy=0.9,
            confidence=0.9,
            seed=seed,
        )
        truth = [1 if one else 2 for one in right]
        kept.append(sum(map(int.__eq__, result.answers, truth)) >= 0.9 * CALLS)

    assert binomtest(sum(kept), len(kept), 0.9, "less").pvalue > 0.001
    assert sum(kept) < len(kept), "a bound that never fails asks more than it must"


@pytest.mark.parametrize("scores", ["against", "equal", "sure of all"])
def test_the_promise_holds_for_scores_that_mislead(scores: str) -> None:
    rng = np.random.default_rng(0)
    truth = rng.random(CALLS) < 0.3
    given = {"against": np.where(truth, 0.1, 0.9), "equal": np.full(CALLS, 0.5)}
    misleading = given.get(scores, rng.random(CALLS))

    for seed in range(8):
        result = rq.run_cascade(
            Oracle(truth.tolist()), misleading, precision=0.9, recall=0.9, seed=seed
        )
        precision, recall = shares(result.answers, truth.tolist())
        assert min(precision, recall) >= 0.9


def test_rows_count_as_often_as_they_are() -> None:
    rng = np.random.default_rng(2)
    scores, truth = graded(400)
    weights = rng.zipf(1.6, 400).clip(1, 300)

    kept = []
    for seed in range(60):
        result = rq.run_cascade(
            Oracle(truth), scores, precision=0.9, recall=0.9, weights=weights, seed=seed
        )
        kept.append(min(shares(result.answers, truth, weights)) >= 0.9)

    assert binomtest(sum(kept), len(kept), 0.95, "less").pvalue > 0.001
    assert result.report.rows == weights.sum()
    assert result.report.calls == 400


def test_heavy_rows_of_a_sure_proxy_are_weighed_by_their_rows() -> None:
    # One call in ten is an error, and stands for ten rows: half of the rows are wrong.
    truth = [call % 10 != 0 for call in range(CALLS)]
    weights = np.array([1 if right else 10 for right in truth])

    result = rq.run_cascade(
        Oracle(truth), [0.9] * CALLS, precision=0.9, recall=0.9, weights=weights
    )

    assert shares(result.answers, truth, weights)[0] >= 0.9


def test_an_error_counts_as_often_as_its_call_was_drawn() -> None:
    labels = OracleLabels(4)
    labels.asked[[0, 1, 3]], labels.yes[0], labels.failed[3] = True, True, True
    coins = np.array([3, 1, 0, 2])
    side = Side(np.arange(4), wrong=False, coins=coins, plan=SamplingPlan(0.5, (), 4, 0.0), reach=4)

    assert side.hits(labels).tolist() == [0, 1, 1, 3]


def test_calls_without_a_score_are_asked_and_failed_ones_have_no_answer() -> None:
    scores, truth = graded()
    given: list[float | None] = scores.tolist()
    given[3:6] = [None, float("nan"), None]
    answers: list[bool | None] = list(truth)
    answers[4] = None

    result = rq.run_cascade(Oracle(answers), given, precision=0.9, recall=0.9)

    assert result.asked[3:6].all()
    assert result.answers[3:6] == [truth[3], None, truth[5]]
    assert result.report.failed == 1


def test_a_sample_that_cannot_show_the_target_leads_to_the_oracle() -> None:
    scores, truth = graded(30)
    oracle = Oracle(truth)

    result = rq.run_cascade(oracle, scores, precision=0.95, recall=0.95)

    assert sorted(oracle.asked) == list(range(30))
    assert result.answers == truth
    assert "could not show" in repr(result)


def test_a_failed_call_that_was_drawn_counts_as_an_error() -> None:
    scores, truth = graded()
    answers = [yes if score > 0.5 else None for yes, score in zip(truth, scores, strict=True)]

    result = rq.run_cascade(Oracle(answers), scores, precision=0.9, recall=0.9)

    decided = ~result.asked & (scores <= 0.5)
    assert decided.sum() < 0.1 * CALLS, "rows without an answer may all be lost ones"


def test_one_target_leaves_the_other_side_exact() -> None:
    scores, truth = graded()

    accepting = rq.run_cascade(Oracle(truth), scores, precision=0.9)
    rejecting = rq.run_cascade(Oracle(truth), scores, recall=0.9)

    assert shares(accepting.answers, truth)[1] == 1.0
    assert accepting.report.rejected is None
    assert shares(rejecting.answers, truth)[0] == 1.0
    assert rejecting.report.accepted is None


def test_labels_of_any_kind_have_an_accuracy() -> None:
    rng = np.random.default_rng(0)
    labels = np.array(["red", "green", "blue"])[rng.integers(0, 3, CALLS)]
    sure = rng.beta(0.5, 0.2, CALLS)
    own = np.where(rng.random(CALLS) < sure, labels, "red")

    result = rq.run_cascade(Oracle(labels.tolist()), sure, answers=own.tolist(), accuracy=0.85)

    assert np.mean(np.array(result.answers) == labels) >= 0.85
    assert result.report.by_proxy > 0.3 * CALLS


def test_a_head_on_vectors_learns_from_the_answers() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(CALLS, 64))
    truth: Bools = vectors[:, 0] + 0.1 * rng.normal(size=CALLS) > 0
    vectors[:, 0] *= 4
    oracle = Oracle(truth.tolist())

    result = rq.run_cascade(oracle, vectors=vectors, precision=0.9, recall=0.9)

    assert min(shares(result.answers, truth.tolist())) >= 0.9
    assert len(oracle.asked) == len(set(oracle.asked)) < 0.75 * CALLS


def test_the_same_seed_asks_the_same() -> None:
    scores, truth = graded()
    first, again, other = (Oracle(truth) for _ in range(3))

    for oracle, seed in ((first, 1), (again, 1), (other, 2)):
        rq.run_cascade(oracle, scores, precision=0.9, recall=0.9, seed=seed)

    assert first.asked == again.asked
    assert first.asked != other.asked


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"scores": [0.5]}, "No target is set"),
        ({"scores": [0.5], "precision": 1.0}, "between 0 and 1"),
        ({"scores": [0.5], "precision": 0.9, "confidence": 95}, "confidence is 95"),
        ({"scores": [0.5], "precision": 0.9, "accuracy": 0.9}, "stands alone"),
        ({"precision": 0.9}, "either scores= of a proxy or vectors="),
        ({"scores": [0.5], "recall": 0.9, "weights": [0]}, "whole numbers of at least 1"),
        ({"scores": [0.5], "recall": 0.9, "answers": ["a"]}, "need accuracy="),
        ({"scores": [float("inf")], "recall": 0.9}, "infinite"),
        ({"vectors": [0.5], "recall": 0.9}, "must have two"),
    ],
)
def test_settings_that_cannot_be_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        rq.run_cascade(Oracle([True]), **given)


def test_an_oracle_must_answer_every_call_by_yes_or_no() -> None:
    scores, _ = graded()

    with pytest.raises(ConfigError, match="returned 0 answers"):
        rq.run_cascade(lambda calls: [], scores, recall=0.9)
    with pytest.raises(ConfigError, match="'Yes'; it must be True, False or None"):
        rq.run_cascade(lambda calls: ["Yes"] * len(calls), scores, recall=0.9)
