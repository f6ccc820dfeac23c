"""Bounds on the errors that a draw of rows has missed: exact, for any labels.

Rows stand in a fixed order, and a coin decides for each of them, with probability `rate` and
before any label is known, whether it is drawn. Drawn rows are labelled; an error among them is a
*hit*, an error among the others is *missed*. Go along the order and stop before hit number c + 1.
More than m errors are missed there only if, of the first m + 1 + c errors of the order, at most c
were drawn. Which rows these are depends on no coin, so the probability is at most

    P(Binomial(m + 1 + c, rate) <= c),

whatever the labels are and wherever the errors stand. Where to stop is found by the data, with a
threshold anywhere between two rows, and costs nothing: it is Wilks' order statistic (1941,
"Determination of Sample Sizes for Setting Tolerance Limits") on coins in place of samples.

BARGAIN (Zeighami, Shankar and Parameswaran, SIGMOD 2026, "Cut Costs, Not Accuracy") asks the same
question with a betting martingale (Waudby-Smith and Ramdas 2024, "Estimating means of bounded
random variables by betting") at each of twenty thresholds, from the sure end until one fails. Its
martingale may be read after every label and pays for that: it needs ln(1 / failure) where an exact
tail needs less. Here labels of drawn rows are read at one time, so the exact tail will do. What
is drawn is known, so only missed errors count, which BARGAIN's estimate of all errors does not use.

A row that stands for several has one coin for each of them: see `sampling`.
"""

from __future__ import annotations

from functools import lru_cache
from math import log, log1p

import numpy as np

BOUND = "exact binomial bound"
"""The name of the bound, for reports."""
_HALVINGS = 24
"""Of the interval in which a rate is searched: it exceeds the smallest one by less than 1e-7."""


def log_tail(hits: int, errors: int, rate: float) -> float:
    """The logarithm of P(Binomial(errors, rate) <= hits)."""
    if hits >= errors or rate <= 0:
        return 0.0
    if rate >= 1:
        return -np.inf
    step = np.arange(1, hits + 1)
    terms = np.zeros(hits + 1)
    np.cumsum(np.log((errors - step + 1) / step) + log(rate) - log1p(-rate), out=terms[1:])
    most = float(terms.max())
    return min(0.0, errors * log1p(-rate) + most + log(float(np.exp(terms - most).sum())))


@lru_cache(4096)
def least_rate(hits: int, missed: int, failure: float) -> float:
    """The smallest rate at which, before hit number hits + 1, more than `missed` errors are missed
    with probability `failure` at most.
    """
    low, high = hits / (missed + 1 + hits), 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if log_tail(hits, missed + 1 + hits, middle) <= log(failure):
            high = middle
        else:
            low = middle
    return high


def most_missed(hits: int, rate: float, failure: float) -> int:
    """The most errors missed before hit number hits + 1, but with probability `failure`."""
    low, high = -1, 1
    while log_tail(hits, high + 1 + hits, rate) > log(failure):
        low, high = high, 2 * high + 1
    while high - low > 1:
        middle = (low + high) // 2
        if log_tail(hits, middle + 1 + hits, rate) <= log(failure):
            high = middle
        else:
            low = middle
    return high
