"""SUPG's and LOTUS's rules for thresholds, as their papers and programs have them.

SUPG (Kang et al., VLDB 2020): calls are drawn with replacement, by the square root of their score,
a tenth evenly; bounds are those of the normal distribution. For recall the threshold is that of a
target which the bounds have raised; for precision the lowest of those, 100 drawn calls apart, whose
lower bound holds. LOTUS (Patel et al., VLDB 2025): one sample for both thresholds, half of it drawn
evenly; recall first, then the precision of the calls above a threshold, each score of the sample
being a candidate.

What is not decided is asked, on all sides, so that calls are compared for equal results.
"""

from __future__ import annotations

from math import log, sqrt

import numpy as np

from benchmarks.cascade.data import Case
from benchmarks.cascade.draws import CONFIDENCE, TARGET, Kind, Outcome
from relquery.arrays import Bools, Floats, Int64s

_FAILURE = 1 - CONFIDENCE
_EVENLY, _STEP = 0.1, 100
"""SUPG's: the part of the draws that is even, and drawn calls between candidates for precision."""
_LOTUS_EVENLY, _LOTUS_SHARE, _QUANTILES = 0.5, 0.1, 50
"""LOTUS's defaults: the even part, the share of calls that is drawn, and the steps of a score."""


def supg(case: Case, kind: Kind, budget: int, seed: int) -> Outcome | None:
    """A draw of SUPG. Both targets: its result for recall, asked about entirely. budget: calls that
    are drawn. None for accuracy, which it does not have."""
    if kind == "accuracy":
        return None
    rng = np.random.default_rng(seed)
    order = np.argsort(-case.scores, kind="stable")
    yes, chance = case.yes[order], _mixed(np.sqrt(case.scores[order]), _EVENLY)
    drawn = np.sort(rng.choice(len(yes), budget, p=chance))
    mass = yes[drawn] / (len(yes) * chance[drawn])
    asked = np.zeros(len(yes), bool)
    asked[drawn] = True
    said = yes & asked
    if kind == "precision":
        last = _supg_precision(yes, chance, drawn)
        said[:last] = True
        asked[last:] = True
        said[last:] = yes[last:]
    else:
        last = _supg_recall(mass, drawn, len(yes))
        asked[:last] = True
        said[:last] = yes[:last]
    return _outcome(case, order, said, asked)


def _supg_precision(yes: Bools, chance: Floats, drawn: Int64s) -> int:
    """How many calls are accepted."""
    candidates, last = range(_STEP, len(drawn), _STEP), 0
    for index in candidates:
        end = int(drawn[index]) + 1
        share = chance[:end] / chance[:end].sum()
        some = drawn[: index + 1]
        low, _ = _normal(yes[some] / (end * share[some]), _FAILURE / (1 + 2 * len(candidates)))
        if low > TARGET:
            last = end
    return last


def _supg_recall(mass: Floats, drawn: Int64s, calls: int) -> int:
    """How many calls are not rejected. mass: that of the positives among the drawn ones."""
    total = float(mass.sum())
    if not total:
        return calls
    index = int(np.searchsorted(np.cumsum(mass), TARGET * total))
    before = np.arange(len(mass)) <= index
    _, most = _normal(mass * before, _FAILURE / 2)
    least, _ = _normal(mass * ~before, _FAILURE / 2)
    raised = most / (most + least) if most + least > 0 else 1.0
    if raised >= 1:
        return calls
    end = int(np.searchsorted(np.cumsum(mass), raised * total))
    return int(drawn[min(end, len(drawn) - 1)]) + 1


def _normal(values: Floats, failure: float) -> tuple[float, float]:
    spread = float(values.std()) / sqrt(len(values)) * sqrt(2 * log(1 / (2 * failure)))
    return float(values.mean()) - spread, float(values.mean()) + spread


def lotus(case: Case, kind: Kind, seed: int) -> Outcome | None:
    """A draw of LOTUS's filter cascade; None for accuracy, which it does not have.

    A target that is not set is 1, which leaves that side to the oracle.
    """
    if kind == "accuracy":
        return None
    rng = np.random.default_rng(seed)
    edges = np.percentile(case.scores, np.linspace(0, 100, _QUANTILES + 1))
    scores = np.clip((np.digitize(case.scores, edges) - 1) / _QUANTILES, 0, 1)
    chance = _mixed(np.sqrt(scores), _LOTUS_EVENLY)
    drawn = rng.choice(len(scores), int(_LOTUS_SHARE * len(scores)), p=chance)
    drawn = drawn[np.argsort(-scores[drawn], kind="stable")]
    yes, mass = case.yes[drawn], case.yes[drawn] / (len(scores) * chance[drawn])
    low, high = 0.0, 1.0
    if kind != "precision":
        low = _lotus_low(scores[drawn], mass)
    if kind != "recall":
        high = max(low, _lotus_high(scores[drawn], yes))
    accepted = scores >= high if kind != "recall" else np.zeros(len(scores), bool)
    rejected = scores <= low if kind != "precision" else np.zeros(len(scores), bool)
    asked = ~(accepted | rejected)
    asked[drawn] = True
    said = np.where(accepted | rejected, accepted, case.yes)
    return Outcome.of(case, said, asked)


def _lotus_low(scores: Floats, mass: Floats) -> float:
    def lowest(target: float) -> float:
        kept = [float((mass * (scores > score)).sum()) for score in scores]
        total = float(mass.sum())
        enough = [score for score, held in zip(scores, kept, strict=True) if held >= target * total]
        return float(max(enough, default=0.0))

    first = lowest(TARGET)
    above, below = mass[scores >= first], mass[scores < first]
    most, least = (_spread(side, len(mass), sign) for side, sign in ((above, 1), (below, -1)))
    raised = 1.0 if most + least == 0 else min(1.0, most / (most + least))
    return lowest(raised)


def _lotus_high(scores: Floats, yes: Bools) -> float:
    held = [1.0]
    for score in scores:
        some = yes[scores >= score].astype(float)
        low = some.mean() - some.std() / sqrt(len(some)) * sqrt(2 * log(len(scores) / _FAILURE))
        if low > TARGET:
            held.append(float(score))
    return min(held)


def _spread(side: Floats, count: int, sign: int) -> float:
    if not len(side):
        return 0.0
    spread = float(side.std()) / sqrt(count) * sqrt(2 * log(2 / _FAILURE))
    return float(side.mean()) + sign * spread


def _mixed(weights: Floats, evenly: float) -> Floats:
    total = float(weights.sum())
    share = weights / total if total else np.full(len(weights), 1 / len(weights))
    mixed: Floats = (1 - evenly) * share + evenly / len(weights)
    mixed /= mixed.sum()
    return mixed


def _outcome(case: Case, order: Int64s, said: Bools, asked: Bools) -> Outcome:
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return Outcome.of(case, said[back], asked[back])
