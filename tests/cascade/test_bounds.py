"""The bound on missed errors is the exact one."""

from __future__ import annotations

from math import exp

import pytest
from scipy.stats import binom

from relquery.cascade.bounds import least_rate, log_tail, most_missed


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
