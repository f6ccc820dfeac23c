"""A claim about the answers to all calls, tested on some of them: yes to these, no to those.

The claim gives A rows a yes and the others a no. Of the A rows, e have another answer, and of the
others n. Rows that were asked get their own answers, the others the claimed ones. Then

    precision >= p  if  e <= (1 - p) A,
    recall    >= r  if  n r <= (1 - r) (A - e).

Each row has a coin, and drawn rows are asked. A side, yes or no, passes if at most c of its drawn
rows are errors. With more than m errors it passes with the probability
P(Binomial(m + 1, rate) <= c) at most, whichever they are; see `bounds`. Both sides must pass. If a
target is missed, one of the sides has more errors than are allowed, and its probability alone
bounds that of a wrong verdict: no union over the sides is needed (an intersection-union test,
Berger 1982, "Multiparameter Hypothesis Testing and Acceptance Sampling").

There are two looks. Most of the failure probability is for a side without any error, which takes
the fewest calls; a side with a few errors is looked at once more.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from math import floor

import numpy as np

from relquery.arrays import Bools, Int64s
from relquery.cascade.bounds import least_rate
from relquery.cascade.thresholds import OracleLabels

_LOOKS = ((0, 0.8), (3, 0.2))
"""The errors that a look allows, and its part of the failure probability."""
_WORTH = 0.5
"""The share of the calls that may be drawn at the first look."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The evidence of the drawn calls for a claim."""

    holds: bool
    """Whether both targets are met, but for the failure probability."""
    labels: OracleLabels
    """What was asked, and answered."""
    wrong: int
    """Calls that were drawn and have another answer than was claimed, or none."""

    @property
    def drawn(self) -> int:
        """Calls that were asked."""
        return int(self.labels.asked.sum())


@dataclass(slots=True)
class _Side:
    """The calls to which one answer is claimed. coins: rows drawn by look, (looks, calls)."""

    yes: bool
    coins: Int64s
    expected: float
    """Calls that the first look is expected to draw."""
    passed: bool = False

    def errors(self, labels: OracleLabels) -> Bools:
        """(calls,), which of the asked calls contradict the claim."""
        wrong: Bools = labels.failed | (labels.asked & (labels.yes != self.yes))
        return wrong


def check_claim(
    claimed: Bools,
    weights: Int64s,
    precision: float,
    recall: float,
    failure: float,
    rng: np.random.Generator,
) -> Generator[Int64s, Sequence[bool | None], Verdict]:
    """Yields calls to be asked, and is sent the yes, no or None (failed) of each.

    claimed: (calls,), whether yes is claimed. weights: the rows of each call. failure: the most
    probable a verdict may be that holds where a target is missed.
    """
    labels = OracleLabels(len(claimed))
    rows = int(weights[claimed].sum())
    most = floor((1 - precision) * rows + 1e-9)
    others = floor((1 - recall) / recall * (rows - most) + 1e-9)
    sides = [
        _side(yes, np.where(claimed == yes, weights, 0), allowed, failure, rng)
        for yes, allowed in ((True, most), (False, others))
    ]
    if sum(side.expected for side in sides) > _WORTH * len(claimed):
        return Verdict(False, labels, 0)
    for look, (hits, _) in enumerate(_LOOKS):
        waiting = [side for side in sides if not side.passed]
        drawn = sum(side.coins[look] for side in waiting)
        yield from labels.ask(np.flatnonzero(drawn))
        errors_of = [int(side.coins[look][side.errors(labels)].sum()) for side in waiting]
        for side, errors in zip(waiting, errors_of, strict=True):
            side.passed = errors <= hits
        if all(side.passed for side in sides) or max(errors_of) > _LOOKS[-1][0]:
            break
    wrong = labels.failed | (labels.asked & (labels.yes != claimed))
    return Verdict(all(side.passed for side in sides), labels, int(wrong.sum()))


def _side(
    yes: bool, weights: Int64s, allowed: int, failure: float, rng: np.random.Generator
) -> _Side:
    rates = [
        least_rate(hits, allowed - hits, part * failure) if allowed > hits else 1.0
        for hits, part in _LOOKS
    ]
    last = rng.binomial(weights, rates[-1])
    first = rng.binomial(last, min(1.0, rates[0] / rates[-1]))  # the same coins, fewer of them
    expected = float((1 - (1 - rates[0]) ** weights).sum())
    return _Side(yes, np.stack((first, last)).astype(np.int64), expected)
