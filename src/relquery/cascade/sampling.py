"""Samples of rows for labels: a pilot, and coins along an order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relquery.arrays import Bools, Floats, Int64s
from relquery.cascade.bounds import least_rate, most_missed

MOST_RATE = 0.9
"""Beyond this rate drawing saves too little to be worth a bound."""
_HITS = (*range(7), 8, 10, 12, 15, 18, 22, 27, 33, 40, 50, 60, 75, 90, 120, 160, 220, 300, 400)
"""That a plan tries; between them savings hardly differ."""
_DOUBT = 0.3
"""Variance of the errors there are over those that a pilot makes one expect."""
_WORSE = 0.8
"""Of the best savings: more hits save less from there on."""
_MAIN, _OTHER = 0.85, 0.05
"""How the failure probability of a side is split: for the planned rung, and for each other one."""


@dataclass(frozen=True, slots=True)
class Rung:
    """A place to stop: before hit number hits + 1."""

    hits: int
    """The hits that are allowed."""
    missed: int
    """The most rows in error that are missed up to there, but with the rung's part of the failure
    probability."""


@dataclass(frozen=True, slots=True)
class SamplingPlan:
    """Coins of one rate, and rungs whose bounds hold together."""

    rate: float
    """The probability that a row is drawn."""
    rungs: tuple[Rung, ...]
    """By falling hits."""
    reach: int
    """How many calls along the order the planned rung is expected to come."""
    saved: float
    """The calls among them that are expected not to be made."""


def spread_over(count: int, draws: int, rng: np.random.Generator) -> Int64s:
    """Places of a pilot: one in each of `draws` equal parts of an order of `count`."""
    edges = np.linspace(0, count, min(draws, count) + 1)
    low, high = np.ceil(edges[:-1]).astype(np.int64), np.ceil(edges[1:]).astype(np.int64)
    return rng.integers(low, np.maximum(high, low + 1))


def plan(
    wrong: Floats, weights: Int64s, free: Bools, missed: int, failure: float, *, exact: bool
) -> SamplingPlan | None:
    """The rate and the hits that are expected to save most calls; None if none saves any.

    wrong: how likely each call of the order is an error, from the sure end on. weights: its rows.
    free: whether it may be drawn. missed: rows that may be missed. exact: whether that number is
    certain; otherwise it is an estimate, and other rungs stand by above and below.
    """
    best: tuple[float, int, float, int] | None = None
    main = failure if exact else _MAIN * failure
    for hits in _HITS:
        rate = least_rate(hits, missed, main)
        if rate > MOST_RATE:
            break
        drawn = free & ~heavy(weights, rate)
        met = np.cumsum(np.where(drawn, wrong * weights, 0.0)) * rate
        reach = int(np.searchsorted(met, hits + 0.7))
        spared = np.where(drawn, (1 - rate) ** weights, 0.0)
        saved = float((spared * _comes_by(hits, met)).sum())
        if best is not None and saved < _WORSE * best[0]:
            break
        if saved > 0 and (best is None or saved > best[0]):
            best = saved, hits, rate, reach
    if best is None:
        return None
    saved, hits, rate, reach = best
    main_rung = Rung(hits, missed)
    others = () if exact else sorted({hits + max(2, hits // 2), hits // 2, 0} - {hits})
    rungs = [main_rung, *(Rung(each, most_missed(each, rate, _OTHER * failure)) for each in others)]
    return SamplingPlan(rate, tuple(sorted(rungs, key=lambda rung: -rung.hits)), reach, saved)


def _comes_by(hits: int, met: Floats) -> Floats:
    """How likely a scan comes by each place of an order. met: hits that are expected up to there.

    The tail of a gamma distribution, widened by the doubt about rates that a small pilot leaves,
    by the cube root of Wilson and Hilferty (1931, "The Distribution of Chi-square"). Plans need
    no more than the logistic curve in place of the normal one.
    """
    most = hits + 1
    deviation = (met / most) ** (1 / 3) - (1 - 1 / (9 * most))
    scale = np.sqrt(1 / (9 * most) + _DOUBT / 9)
    return np.asarray(1 / (1 + np.exp(1.702 * deviation / scale)))


def heavy(weights: Int64s, rate: float) -> Bools:
    """Calls that stand for so many rows that they are asked outright, not drawn."""
    return np.asarray(weights * rate >= 1)


def toss(weights: Int64s, free: Bools, rate: float, rng: np.random.Generator) -> Int64s:
    """How many rows of each call are drawn: a call that stands for several has as many coins.

    It is asked if one of them is drawn, and each of them counts as a hit if it is an error. So as
    many hits are counted as if its rows stood apart, and no more rows are missed.
    """
    return np.where(free, rng.binomial(weights, rate), 0).astype(np.int64)
