"""Bounds are exact, and a claim about all answers holds as often as was promised."""

from __future__ import annotations

from math import exp

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from relquery.arrays import Bools, Int64s
from relquery.cascade.bounds import least_rate, log_tail, most_missed
from relquery.cascade.cascade import drive
from relquery.cascade.claims import Verdict, check_claim

CALLS = 4_000
CLAIMED = np.arange(CALLS) < CALLS // 2
ONES = np.ones(CALLS, np.int64)


def verdict(yes: Bools, weights: Int64s = ONES, seed: int = 0, claimed: Bools = CLAIMED) -> Verdict:
    steps = check_claim(claimed, weights, 0.9, 0.9, 0.05, np.random.default_rng(seed))
    return drive(steps, lambda calls: yes[calls].tolist(), lambda call, answer: bool(answer))[0]


def truth(false: int, missed: int) -> Bools:
    """The claim but for so many errors among its yes, and among its no."""
    yes = CLAIMED.copy()
    yes[:false] = False
    yes[CALLS - missed :] = True
    return yes


@pytest.mark.parametrize("weight", [1, 8])
@pytest.mark.parametrize(("false", "missed"), [(201, 0), (0, 223), (201, 201), (100, 212)])
def test_a_claim_that_just_misses_a_target_is_hardly_ever_believed(
    false: int, missed: int, weight: int
) -> None:
    yes, weights = truth(false, missed), np.full(CALLS, weight)

    believed = sum(verdict(yes, weights, seed).holds for seed in range(500))

    assert binomtest(believed, 500, 0.05, "greater").pvalue > 0.01


def test_a_true_claim_takes_few_calls_and_a_good_one_is_mostly_believed() -> None:
    found = [verdict(CLAIMED, seed=seed) for seed in range(100)]
    assert all(one.holds and not one.wrong for one in found)
    assert np.mean([one.drawn for one in found]) < 72

    good = [verdict(truth(20, 20), seed=seed).holds for seed in range(100)]
    assert np.mean(good) > 0.9


def test_what_saves_nothing_is_not_asked() -> None:
    few = np.arange(CALLS) < 5  # so few yes that nearly all no would have to be drawn

    found = verdict(few, claimed=few)

    assert not found.holds
    assert found.drawn == 0


@pytest.mark.parametrize("rate", [0.001, 0.2, 0.7, 0.999])
@pytest.mark.parametrize("errors", [1, 7, 400])
@pytest.mark.parametrize("hits", [0, 1, 6, 150])
def test_the_tail_is_that_of_the_binomial_distribution(hits: int, errors: int, rate: float) -> None:
    expected = binom.cdf(hits, errors, rate)

    assert exp(log_tail(hits, errors, rate)) == pytest.approx(expected, rel=1e-9, abs=1e-250)


@pytest.mark.parametrize("failure", [0.05, 0.0025])
@pytest.mark.parametrize(("hits", "missed"), [(0, 0), (0, 20), (3, 20), (40, 500)])
def test_a_rate_is_the_least_that_misses_no_more_errors(
    hits: int, missed: int, failure: float
) -> None:
    rate = least_rate(hits, missed, failure)

    assert binom.cdf(hits, missed + 1 + hits, rate) <= failure
    assert binom.cdf(hits, missed + 1 + hits, rate - 1e-4) > failure
    assert most_missed(hits, rate, failure) == missed
    assert most_missed(hits, rate * 0.99, failure) > 0.99 * missed
