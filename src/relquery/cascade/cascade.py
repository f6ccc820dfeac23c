"""Cascades, by scores of a cheap model, an oracle that is asked by call, and targets."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from relquery.arrays import Bools, Floats, Int64s
from relquery.cascade.bounds import BOUND
from relquery.cascade.proxies import certainty
from relquery.cascade.thresholds import Decision, ProxyCut, decide, decide_by_head
from relquery.config import Targets
from relquery.errors import ConfigError

Ask = Callable[[list[int]], Sequence[Any]]
D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class Decided:
    """The calls that the proxy has decided in one way."""

    rows: int
    """Rows that the proxy decides, not counting those that were asked."""
    threshold: float
    """The score of the last of them."""
    wrong: int
    """The most of them that the oracle would have answered otherwise, as far as was shown."""

    @classmethod
    def of(cls, mask: Bools, cut: ProxyCut, scores: Floats, weights: Int64s) -> Decided | None:
        """None where the proxy decides nothing."""
        rows = int(weights[mask].sum())
        if not rows:
            return None
        return cls(rows, float(scores[cut.calls[-1]]), min(rows, cut.rung.missed))


@dataclass(frozen=True, slots=True)
class CascadeReport:
    """Counts and bounds of a cascade that has run."""

    targets: Targets
    """What was promised."""
    rows: int
    """All rows."""
    calls: int
    """Calls that would be made without a proxy: of equal inputs one."""
    asked: int
    """Calls of the oracle."""
    drawn: int
    """Those of them that were asked to plan and to bound, or because they have no score."""
    failed: int
    """Calls of the oracle without an answer."""
    accepted: Decided | None
    """What the proxy accepts (for accuracy: answers)."""
    rejected: Decided | None
    """What the proxy rejects."""
    failure: float
    """The failure probability of each bound."""

    @property
    def by_proxy(self) -> int:
        """Rows that the proxy decides."""
        return sum(side.rows for side in (self.accepted, self.rejected) if side is not None)

    @property
    def summary(self) -> list[str]:
        """The outcome in words."""
        promised = ", ".join(
            f"{name} {value:g}"
            for name in ("precision", "recall", "accuracy")
            if (value := getattr(self.targets, name)) is not None
        )
        share = f"{self.by_proxy:,} of {self.rows:,} rows by the proxy"
        said = [
            f"{promised} with confidence {self.targets.confidence:g}: {share}, {self.asked:,} of "
            f"{self.calls:,} calls asked, {self.drawn:,} of them drawn"
        ]
        if not self.by_proxy:
            said.append(
                "The sample could not show that the proxy meets the target, so all was asked."
            )
        verbs = ("accepted", "rejected") if self.targets.accuracy is None else ("answered", "")
        for verb, side, over in zip(
            verbs, (self.accepted, self.rejected), ("at least", "at most"), strict=True
        ):
            if side is not None:
                said.append(
                    f"{side.rows:,} rows {verb} with a score of {over} {side.threshold:.3g}; at "
                    f"most {side.wrong:,} of them wrongly ({BOUND}, failure probability "
                    f"{self.failure:g})"
                )
        return said


@dataclass(frozen=True, slots=True, repr=False)
class CascadeResult:
    """The answer to each call, and how it came to be."""

    answers: list[Any]
    """The oracle's where it was asked, the proxy's elsewhere; None where the oracle failed."""
    asked: Bools
    """Whether the oracle was asked, by call."""
    report: CascadeReport
    """What was asked and shown."""

    def __repr__(self) -> str:
        return "\n".join(self.report.summary)


def run_cascade(
    ask: Ask,
    scores: Sequence[float | None] | Floats | None = None,
    *,
    vectors: Any = None,
    answers: Sequence[Any] | None = None,
    precision: float | None = None,
    recall: float | None = None,
    accuracy: float | None = None,
    confidence: float = 0.95,
    weights: Sequence[int] | Int64s | None = None,
    seed: int = 0,
) -> CascadeResult:
    """Answer calls by a proxy's scores where that meets the targets, and ask an oracle elsewhere.

    ask: the oracle. Given numbers of calls, it returns the answer to each: True or False, with
    `answers` any value; None if it failed. It is asked several times, about each call at most once.
    scores: of each call, higher where yes is likelier (with `answers`: where they are likelier
    right); None or NaN for calls that are to be asked. vectors: (calls, dimensions), embeddings in
    place of scores; a logistic head is trained on some of the oracle's answers. answers: the
    proxy's own, any values; only with accuracy. weights: the rows that each call stands for, 1 by
    default. The targets hold for rows. seed: of what is drawn.

    precision, recall: of the rows with a yes; one that is not given is exact. accuracy: the share
    of rows with the oracle's answer. With the probability `confidence`, at least, all of them are
    met by the oracle's answers, whatever the scores are worth: the probability is over the rows
    that are drawn. Where this cannot be shown, all calls are asked.

    Raises ConfigError.
    """
    targets = Targets(precision, recall, accuracy, confidence)
    given, features = _inputs(scores, vectors)
    calls = len(given if features is None else features)
    rows = _weights(weights, calls)
    if answers is not None and (accuracy is None or len(answers) != calls):
        raise ConfigError(
            "answers= are the proxy's, one for each call, and need accuracy= as the target."
        )
    rng = np.random.default_rng(seed)
    own: list[Any] = [] if answers is None else list(answers)
    if accuracy is not None and answers is None:
        if features is not None:
            raise ConfigError("accuracy= needs scores=, or answers= of the proxy; not vectors=.")
        own, given = (given >= 0.5).tolist(), certainty(given)

    def agree(call: int, answer: Any) -> bool | None:
        if answer is None:
            return None
        if own:
            return bool(answer == own[call])
        if not isinstance(answer, (bool, np.bool_)):
            raise ConfigError(f"ask returned {answer!r}; it must be True, False or None.")
        return bool(answer)

    steps = (
        decide(given, rows, targets, rng)
        if features is None
        else decide_by_head(features, rows, targets, rng)
    )
    decision, heard = drive(steps, ask, agree)
    kept = own or decision.accepted.tolist()
    verdicts = [heard[call] if call in heard else kept[call] for call in range(calls)]
    return CascadeResult(verdicts, decision.labels.asked, report_of(decision, rows, targets))


def drive(
    steps: Generator[Int64s, Sequence[bool | None], D],
    ask: Ask,
    agree: Callable[[int, Any], bool | None],
) -> tuple[D, dict[int, Any]]:
    """Ask what a procedure wants to be asked. Returns its decision, and the answers by call.

    agree: yes, no or None (failed) of a call's answer.
    """
    heard: dict[int, Any] = {}
    try:
        wanted = next(steps)
        while True:
            calls = wanted.tolist()
            answers = ask(calls)
            if len(answers) != len(calls):
                raise ConfigError(
                    f"ask was given {len(calls)} calls and returned {len(answers)} answers. Return "
                    "one for each, None where there is none."
                )
            heard.update(zip(calls, answers, strict=True))
            wanted = steps.send([agree(*pair) for pair in zip(calls, answers, strict=True)])
    except StopIteration as stop:
        decision: D = stop.value
    return decision, heard


def report_of(decision: Decision, weights: Int64s, targets: Targets) -> CascadeReport:
    """What a decision has asked and shown."""
    labels, (top, bottom) = decision.labels, decision.cuts
    return CascadeReport(
        targets,
        int(weights.sum()),
        len(weights),
        int(labels.asked.sum()),
        decision.drawn,
        int(labels.failed.sum()),
        Decided.of(decision.accepted, top, decision.scores, weights),
        Decided.of(decision.rejected, bottom, decision.scores, weights),
        targets.failure,
    )


def _inputs(scores: Any, vectors: Any) -> tuple[Floats, Floats | None]:
    if (scores is None) == (vectors is None):
        raise ConfigError("Give either scores= of a proxy or vectors= to train a head on.")
    if scores is not None:
        given = np.array([np.nan if score is None else score for score in scores], np.float64)
        if np.isinf(given).any():
            raise ConfigError("scores has an infinite one. Give None for calls without a score.")
        return given, None
    features = np.asarray(vectors, np.float64)
    if features.ndim != 2:
        raise ConfigError(
            f"vectors has {features.ndim} dimensions; it must have two: (calls, numbers of each)."
        )
    return np.empty(0), features


def _weights(given: Any, calls: int) -> Int64s:
    if given is None:
        return np.ones(calls, np.int64)
    weights = np.asarray(given)
    if weights.shape != (calls,) or weights.dtype.kind not in "iu" or (weights < 1).any():
        raise ConfigError(
            f"weights must be {calls} whole numbers of at least 1: the rows of each call."
        )
    return weights.astype(np.int64)
