"""How variants compare with the base, for a table and for all tables together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.accuracy.asking import Answers, Floats
from benchmarks.accuracy.bootstrap import Estimate, auc, draw, share
from relquery.arrays import Int64s


@dataclass(frozen=True, slots=True)
class Compared:
    """What a variant is, and how it differs from the base over the same rows."""

    rows: int
    right: Estimate
    """The share of right answers."""
    right_more: Estimate
    """How much more that is than in the base."""
    auc: Estimate | None
    """How well scores tell rows apart; None without scores. Of several tables, the mean."""
    auc_more: Estimate | None
    same: float
    """The share of answers that are those of the base."""
    tokens: float
    """Tokens of prompts for each row."""


def compare(variant: Mapping[str, Answers], base: Mapping[str, Answers], seed: int) -> Compared:
    """The answers of a variant with those of the base, by table.

    Rows are drawn again table by table, the same for both sides.
    """
    ours, theirs = list(variant.values()), [base[name] for name in variant]
    sizes = np.array([len(our.gold) for our in ours])
    drawn = [draw(size, (seed, place)) for place, size in enumerate(sizes.tolist())]
    right = _right(ours, drawn, sizes)
    scored = all(our.scores is not None for our in ours)
    told = _aucs(ours, drawn) if scored else None
    same = [mine.said == other.said for mine, other in zip(ours, theirs, strict=True)]
    return Compared(
        int(sizes.sum()),
        Estimate.of(right),
        Estimate.of(right - _right(theirs, drawn, sizes)),
        None if told is None else Estimate.of(told),
        None if told is None else Estimate.of(told - _aucs(theirs, drawn)),
        float(np.concatenate(same).mean()),
        float(np.array([our.tokens for our in ours]) @ sizes / sizes.sum()),
    )


def _right(answers: Sequence[Answers], drawn: Sequence[Floats], sizes: Int64s) -> Floats:
    """(1 + resamples,), the share of right answers over all rows; see `draw`."""
    shares = [
        share(answered.right, counts) for answered, counts in zip(answers, drawn, strict=True)
    ]
    right: Floats = sizes @ np.array(shares) / sizes.sum()
    return right


def _aucs(answers: Sequence[Answers], drawn: Sequence[Floats]) -> Floats:
    """(1 + resamples,), how well scores tell rows apart, as the mean of tables."""
    areas = [auc(answered, counts) for answered, counts in zip(answers, drawn, strict=True)]
    mean: Floats = np.mean(areas, axis=0)
    return mean
