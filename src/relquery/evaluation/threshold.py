"""A threshold for scores, chosen from rows with right answers: for the best F1, or a precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from relquery.errors import ConfigError

_RESAMPLES = 1000
_SEED = 0
_TAIL = 2.5  # percent of the resamples on either side of the interval
_Counts = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Threshold:
    """Rows whose score is at least `value` count as true."""

    value: float
    interval: tuple[float, float]
    """Where 95% of the thresholds lie that resampled rows give (percentile bootstrap)."""
    precision: float
    """Of these rows, on which it was chosen; so are the next two."""
    recall: float
    f1: float
    expected_f1: float | None
    """On rows that a resample has left out; None where there were too few."""
    wanted: float | None
    """The least precision that was asked for; None for the best F1."""
    rows: int

    def __str__(self) -> str:
        low, high = self.interval
        why = "best F1" if self.wanted is None else f"precision of {self.wanted:g} or more"
        left = "" if self.expected_f1 is None else f" ({self.expected_f1:.3f} on rows left out)"
        return (
            f"Threshold {self.value!r} ({low:.2g} to {high:.2g}) for the {why}: F1 {self.f1:.3f}"
            f"{left}, precision {self.precision:.3f}, recall {self.recall:.3f} of {self.rows:,} "
            f"rows. Use it: AI_FILTER(..., threshold := {self.value!r}), or AI_SCORE(...) >= it."
        )


def chosen(
    scores: Sequence[float], truths: Sequence[bool], precision: float | None
) -> Threshold | None:
    """The threshold for some rows; None if all right answers are the same, or if no threshold has
    the precision. The same rows always give the same one."""
    right = np.array(truths, np.float64)
    if not 0 < right.sum() < len(right):
        return None
    order = np.argsort(-np.array(scores, np.float64), kind="stable")
    values, right = np.array(scores, np.float64)[order], right[order]
    cut = _best(values, right, np.ones(len(right)), precision)
    if cut is None:
        return None
    best, left = [], np.zeros(3)
    chance = np.random.default_rng(_SEED)
    for _ in range(_RESAMPLES):
        drawn = chance.integers(0, len(right), len(right))
        weights = np.bincount(drawn, minlength=len(right)).astype(np.float64)
        other = _best(values, right, weights, precision)
        if other is not None:
            best.append(_between(values, other))
            left += _counts(right, (weights == 0).astype(np.float64), values >= values[other])
    low, high = np.percentile(best or [values[cut]], [_TAIL, 100 - _TAIL])
    hits, said, true = _counts(right, np.ones(len(right)), values >= values[cut])
    return Threshold(
        _between(values, cut),
        (float(low), float(high)),
        float(hits / said),
        float(hits / true),
        float(2 * hits / (said + true)),
        float(2 * left[0] / (left[1] + left[2])) if left[1] + left[2] else None,
        precision,
        len(right),
    )


def check_precision(precision: Any, *, is_scored: bool) -> None:
    """Raises ConfigError for a precision that is none, or that nothing is chosen by."""
    if precision is None:
        return
    is_number = isinstance(precision, int | float) and not isinstance(precision, bool)
    if not is_number or not 0 < precision <= 1:
        raise ConfigError(f"precision is {precision!r}; it must be above 0 and at most 1.")
    if not is_scored:
        raise ConfigError(
            "precision is for a threshold: the predictions must be scores, as AI_SCORE gives them, "
            "and the right answers booleans, such as label = 'spam'."
        )


def _best(values: _Counts, right: _Counts, weights: _Counts, precision: float | None) -> int | None:
    """The last of the rows, best first, that should count as true. weights: how often each row is
    there."""
    hits, said, true = np.cumsum(right * weights), np.cumsum(weights), float(right @ weights)
    is_last = np.append(values[1:] < values[:-1], True) & (said > 0)  # of equal scores
    if not true or not is_last.any():
        return None
    if precision is None:
        return int(np.where(is_last, 2 * hits / np.maximum(said + true, 1), -1.0).argmax())
    enough = np.flatnonzero(is_last & (hits >= precision * said) & (hits > 0))
    return int(enough[-1]) if len(enough) else None


def _counts(right: _Counts, weights: _Counts, said: npt.NDArray[np.bool_]) -> _Counts:
    """Of some rows: those that are rightly said to be true, are said to be, and are."""
    return np.array([(right * weights)[said].sum(), weights[said].sum(), right @ weights])


def _between(values: _Counts, last: int) -> float:
    """A short number between the score of the last row that counts and the next lower one."""
    high = float(values[last])
    lower = values[values < high]
    low = float(lower[0]) if len(lower) else min(0.0, high - 1.0)
    for digits in range(1, 17):
        middle = round((low + high) / 2, digits)
        if low < middle <= high:
            return middle
    return high
