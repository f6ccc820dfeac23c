"""Intervals of what a sample shows: rows are drawn again, with replacement (paper 000, §6.4)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from benchmarks.accuracy.asking import Answers, Bools, Floats

RESAMPLES = 10_000
_ENDS = (2.5, 97.5)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure of a sample, and its 95 percent interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, found: Floats) -> Estimate:
        """The interval between percentiles in resamples. found: see `draw`."""
        value, known = float(found[0]), found[1:][~np.isnan(found[1:])]
        low, high = np.percentile(known, _ENDS) if len(known) else (np.nan, np.nan)
        return cls(value, float(low), float(high))

    def points(self, *, is_difference: bool = True) -> str:
        """In percent, or in percentage points with a sign."""
        sign = "+" if is_difference else ""
        value, low, high = (
            f"{100 * number:{sign}.1f}" for number in (self.value, self.low, self.high)
        )
        return f"{value} ({low} to {high})"


@lru_cache(maxsize=16)
def draw(rows: int, seed: tuple[int, ...], resamples: int = RESAMPLES) -> Floats:
    """(1 + resamples, rows), how often each row is in the sample itself, and in each resample.

    Two variants that are counted by the same are compared row by row.
    """
    drawn = np.random.default_rng(seed).multinomial(rows, np.full(rows, 1 / rows), resamples)
    return np.concatenate((np.ones((1, rows)), drawn))


def share(holds: Bools, counts: Floats) -> Floats:
    """(1 + resamples,), the share of rows for which something holds."""
    shares: Floats = counts @ holds.astype(np.float64) / counts.shape[1]
    return shares


def auc(answers: Answers, counts: Floats) -> Floats:
    """(1 + resamples,), how likely a yes row has a higher score than a no row, by the labels.

    NaN where a resample has one kind of rows alone. Rows without a score have the lowest.
    """
    assert answers.scores is not None, "a guard compares no scores"
    scores = np.nan_to_num(answers.scores, nan=-1.0)
    yes, no = scores[answers.gold, None], scores[None, ~answers.gold]
    beats = (yes > no) + 0.5 * (yes == no)
    of_yes, of_no = counts[:, answers.gold], counts[:, ~answers.gold]
    wins = ((of_yes @ beats) * of_no).sum(axis=1)
    pairs = of_yes.sum(axis=1) * of_no.sum(axis=1)
    areas: Floats = np.divide(wins, pairs, out=np.full(len(counts), np.nan), where=pairs > 0)
    return areas
