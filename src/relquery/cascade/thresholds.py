"""Thresholds between rows that a proxy decides and rows that are asked: a procedure that asks for
labels as it goes.

Precision and recall. With the calls in the order of their scores, a proxy accepts the first calls
and rejects the last ones; the oracle is asked about all in between, and about drawn ones. Let K be
the rows with a yes of the oracle, A the rows that are accepted unasked, F those of A where the
oracle would say no, and N the rows rejected unasked where it would say yes. The result has K + A
rows, of which K + A - F are right, of K + A - F + N. So

    precision >= p  if  F <= (1 - p) (K + A),
    recall    >= r  if  N r <= (1 - r) (K + A - F).

K and A are known at the end. F is bounded by coins along the order from its top, N by coins from
its bottom (see `bounds`), each bound with half of the failure probability (all of it, if only one
target is set). Both hold together with the confidence, by the union bound, and then both lines may
be read with the bounds in place of F and N. A target that is not set is 1: without a recall,
nothing is rejected unasked, without a precision, nothing is accepted unasked.

A bound holds for the rung that it belongs to, and each rung has its own part of the failure
probability. So the rung may be chosen by all that is known at the end.

Accuracy. The calls in the order of the proxy's confidence; an error is an answer that is not the
oracle's. At most (1 - accuracy) of all rows may be missed, which is known before.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import floor

import numpy as np

from relquery.arrays import Bools, Floats, Int64s
from relquery.cascade.proxies import calibrate, fit_head
from relquery.cascade.sampling import Rung, SamplingPlan, heavy, plan, spread_over, toss
from relquery.config import Targets

Asking = Generator[Int64s, Sequence[bool | None], None]
_LEAST_PILOT, _MOST_PILOT = 32, 64
"""Calls that are labelled first, to plan with: 3% of all, within these."""
_LEAST_TRAINED, _MOST_TRAINED = 40, 400
"""Calls that a head is trained on: a tenth of all, within these."""
_MARGIN = 1.2
"""How much further than planned labels are asked for at once."""
_PARTS = 12
"""Of an order; then labels are asked for a part at a time."""
_CAUTION = 0.85
"""The part of the estimated allowance that is planned with."""
_ROUNDING = 1e-9


class OracleLabels:
    """The oracle's answers, by call."""

    def __init__(self, calls: int) -> None:
        self.asked: Bools = np.zeros(calls, bool)
        self.yes: Bools = np.zeros(calls, bool)
        self.failed: Bools = np.zeros(calls, bool)

    def ask(self, calls: Int64s) -> Asking:
        """Ask about those that were not asked before."""
        new = np.unique(calls[~self.asked[calls]])
        if not len(new):
            return
        answers = yield new
        self.asked[new] = True
        self.yes[new] = [answer is True for answer in answers]
        self.failed[new] = [answer is None for answer in answers]


@dataclass(slots=True)
class Side:
    """One end of the order: a scan from its sure end on."""

    order: Int64s
    """Calls, from the sure end to where the scan ends at the latest."""
    wrong: bool
    """The oracle's answer that is an error here."""
    coins: Int64s
    """Rows drawn, by place in the order."""
    plan: SamplingPlan
    reach: int = 0
    """How far drawn calls have been asked."""

    def hits(self, labels: OracleLabels) -> Int64s:
        """The hits up to each place that was reached; a failed call counts as an error."""
        calls = self.order[: self.reach]
        error = labels.failed[calls] | (labels.asked[calls] & (labels.yes[calls] == self.wrong))
        return np.cumsum(np.where(error, self.coins[: self.reach], 0))

    def goes_on(self, labels: OracleLabels) -> bool:
        """Whether a rung may lead further than the scan has come."""
        return self.reach < len(self.order) and (
            int(self.hits(labels)[-1:].sum()) <= self.plan.rungs[0].hits
        )

    def extend(self) -> Int64s:
        """The drawn calls to be asked next."""
        step = int(self.plan.reach * _MARGIN) if self.reach == 0 else len(self.order) // _PARTS
        start, self.reach = self.reach, min(len(self.order), self.reach + max(step, _LEAST_PILOT))
        return self.order[start : self.reach][self.coins[start : self.reach] > 0]

    def cuts(self, labels: OracleLabels) -> Iterator[ProxyCut]:
        """Its rungs, as the labels so far have it."""
        hits = self.hits(labels)
        for rung in self.plan.rungs:
            stop = int(np.searchsorted(hits, rung.hits, side="right"))
            yield ProxyCut(self.order[:stop], rung)


@dataclass(frozen=True, slots=True)
class ProxyCut:
    """The calls that one side decides without the oracle."""

    calls: Int64s
    """The calls up to a rung, drawn ones among them."""
    rung: Rung

    def rows(self, weights: Int64s, labels: OracleLabels) -> int:
        """Rows that the proxy decides."""
        return int(weights[self.calls][~labels.asked[self.calls]].sum())


NOTHING = ProxyCut(np.empty(0, np.int64), Rung(-1, 0))


@dataclass(frozen=True, slots=True)
class Decision:
    """The answers to all calls, and the bounds that hold for them."""

    labels: OracleLabels
    accepted: Bools
    """Calls that the proxy accepts (for accuracy: whose label it gives)."""
    rejected: Bools
    """Calls that the proxy rejects."""
    cuts: tuple[ProxyCut, ProxyCut]
    """What is accepted and what is rejected."""
    drawn: int
    """Calls that were asked to plan and to bound, and because they have no score."""
    scores: Floats
    """What the calls were ordered by."""


Steps = Generator[Int64s, Sequence[bool | None], Decision]


def decide_by_head(
    vectors: Floats, weights: Int64s, targets: Targets, rng: np.random.Generator
) -> Steps:
    """See `decide`; scores are those of a head on embeddings (calls, dimensions), trained on the
    labels of some calls, which are chosen by lot and have no part in the bounds."""
    labels, count = OracleLabels(len(vectors)), len(vectors)
    yield from labels.ask(rng.choice(count, trained_of(count), replace=False))
    scores = fit_head(vectors, labels.asked & ~labels.failed, labels.yes)
    return (yield from decide(scores, weights, targets, rng, labels))


def pilot_of(calls: int) -> int:
    """How many of some calls are labelled to plan with."""
    return min(calls, max(_LEAST_PILOT, min(_MOST_PILOT, calls // 32)))


def trained_of(calls: int) -> int:
    """How many of some calls a head is trained on."""
    return min(calls, max(_LEAST_TRAINED, min(_MOST_TRAINED, calls // 10)))


def decide(
    scores: Floats,
    weights: Int64s,
    targets: Targets,
    rng: np.random.Generator,
    labels: OracleLabels | None = None,
) -> Steps:
    """Yields calls to be asked, and is sent the oracle's yes, no or None (failed) for each.

    scores: (calls,), higher is likelier yes; NaN: asked in any case. For accuracy, yes means that
    the proxy's label is right, and scores are its confidence. weights: the rows of each call.
    labels: of calls that were asked before.
    """
    labels = OracleLabels(len(scores)) if labels is None else labels
    ranked = _ranked(scores, rng)
    seen = labels.asked.copy()
    new = ranked[~seen[ranked]]
    pilot = new[spread_over(len(new), pilot_of(len(new)), rng)]
    yield from labels.ask(np.concatenate([np.flatnonzero(np.isnan(scores)), pilot]))
    chances = _chances(scores, ranked, labels, seen)
    sides = _sides(ranked, chances, weights, targets, labels, rng)
    outright = [s.order[heavy(weights[s.order], s.plan.rate)] for s in sides]
    yield from labels.ask(_joined(outright))
    while scanned := [side for side in sides if side.goes_on(labels)]:
        yield from labels.ask(_joined([side.extend() for side in scanned]))
    drawn = int(labels.asked.sum())
    cuts = yield from _settle(ranked, sides, scores, weights, targets, labels, seen)
    decided = np.zeros((2, len(scores)), bool)
    for mask, cut in zip(decided, cuts, strict=True):
        mask[cut.calls] = True
    accepted, rejected = decided & ~labels.asked
    return Decision(labels, accepted, rejected, cuts, drawn, scores)


def _ranked(scores: Floats, rng: np.random.Generator) -> Int64s:
    """Calls with a score, the highest first; ties in an order by lot."""
    scored = rng.permutation(np.flatnonzero(~np.isnan(scores)))
    return scored[np.argsort(-scores[scored], kind="stable")]


def _chances(scores: Floats, ranked: Int64s, labels: OracleLabels, seen: Bools) -> Floats:
    """How likely yes is, by place in the order. seen: calls that the scores were fitted to."""
    known = (labels.asked & ~labels.failed & ~seen)[ranked]
    if not known.any():
        return np.full(len(ranked), 0.5)
    return calibrate(scores[ranked], known, labels.yes[ranked])


def _joined(parts: Sequence[Int64s]) -> Int64s:
    return np.concatenate([np.empty(0, np.int64), *parts])


def _sides(
    ranked: Int64s,
    chances: Floats,
    weights: Int64s,
    targets: Targets,
    labels: OracleLabels,
    rng: np.random.Generator,
) -> list[Side]:
    """The scans that are expected to save calls."""
    free = ~labels.asked[ranked]
    rows = weights[ranked]
    known = int(weights[labels.asked & labels.yes].sum())
    positive = known + float((chances * rows)[free].sum())
    failure = targets.failure
    top = bottom = None
    if targets.accuracy is not None:
        missed = _allowed(targets.accuracy, int(weights.sum()))
        top = plan(1 - chances, rows, free, missed, failure, exact=True)
    if (precision := targets.precision) is not None:
        missed = int(_CAUTION * positive * (1 - precision) / precision)
        top = plan(1 - chances, rows, free, missed, failure, exact=False)
    if (recall := targets.recall) is not None:
        missed = int(_CAUTION * positive * (1 - recall))
        bottom = plan(chances[::-1], rows[::-1], free[::-1], missed, failure, exact=False)
    split = _meeting(top, bottom, chances)
    sides = []
    for side, order, wrong in (
        (top, ranked[:split], False),
        (bottom, ranked[split:][::-1], True),
    ):
        if side is not None:
            open_ = ~labels.asked[order] & ~heavy(weights[order], side.rate)
            sides.append(Side(order, wrong, toss(weights[order], open_, side.rate, rng), side))
    return sides


def _meeting(top: SamplingPlan | None, bottom: SamplingPlan | None, chances: Floats) -> int:
    """The place that neither scan crosses: amid the rows to be asked, or where yes becomes no."""
    count = len(chances)
    if top is None or bottom is None:
        return 0 if top is None else count
    low, high = top.reach, count - bottom.reach
    if low <= high:
        return (low + high) // 2
    return int(np.clip(np.count_nonzero(chances > 0.5), high, low))


def _allowed(accuracy: float, rows: int) -> int:
    return floor((1 - accuracy) * rows + _ROUNDING)


def _settle(
    ranked: Int64s,
    sides: Sequence[Side],
    scores: Floats,
    weights: Int64s,
    targets: Targets,
    labels: OracleLabels,
    seen: Bools,
) -> Generator[Int64s, Sequence[bool | None], tuple[ProxyCut, ProxyCut]]:
    """Ask what no side decides, with the rungs that save most and still meet the targets."""
    by_side: dict[bool, list[ProxyCut]] = {False: [NOTHING], True: [NOTHING]}
    for side in sides:
        by_side[side.wrong] += side.cuts(labels)
    pairs = list(product(by_side[False], by_side[True]))
    pairs.sort(key=lambda pair: sum(int((~labels.asked[cut.calls]).sum()) for cut in pair))
    chances = np.zeros(len(scores))
    chances[ranked] = _chances(scores, ranked, labels, seen)
    while True:
        top, bottom = pair = pairs.pop()
        between = ~labels.asked
        between[top.calls] = between[bottom.calls] = False
        expected = float((weights * chances)[between].sum())
        if pairs and not _meets(top, bottom, expected, weights, targets, labels):
            continue
        yield from labels.ask(np.flatnonzero(between))
        if _meets(top, bottom, 0.0, weights, targets, labels):
            return pair


def _meets(
    top: ProxyCut,
    bottom: ProxyCut,
    expected: float,
    weights: Int64s,
    targets: Targets,
    labels: OracleLabels,
) -> bool:
    """Whether the bounds show the targets. expected: rows with a yes among those to be asked."""
    accepted, rejected = top.rows(weights, labels), bottom.rows(weights, labels)
    false = min(top.rung.missed, accepted)
    lost = min(bottom.rung.missed, rejected)
    if targets.accuracy is not None:
        return false <= _allowed(targets.accuracy, int(weights.sum()))
    returned = float(weights[labels.yes].sum()) + expected + accepted
    precision, recall = targets.precision or 1.0, targets.recall or 1.0
    return (
        false <= (1 - precision) * returned + _ROUNDING
        and lost * recall <= (1 - recall) * (returned - false) + _ROUNDING
    )
