"""One cascade of a case: what it asks, and what it meets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, lgamma, log, log1p
from typing import Any, Literal

import numpy as np

import relquery as rq
from benchmarks.cascade.data import Case
from relquery.arrays import Bools

Kind = Literal["precision", "recall", "accuracy", "both"]
KINDS: tuple[Kind, ...] = ("precision", "recall", "accuracy", "both")
TARGET, CONFIDENCE = 0.9, 0.95
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Outcome:
    """How good a result is, over rows."""

    calls: int
    """Of the oracle."""
    most: int
    """All calls there are."""
    precision: float
    recall: float
    accuracy: float

    @classmethod
    def of(cls, case: Case, said: Bools, asked: Bools) -> Outcome:
        """said: the answer to each call."""
        rows, yes = case.rows, case.yes
        right = float(rows[said & yes].sum())
        returned, positive = float(rows[said].sum()), float(rows[yes].sum())
        return cls(
            int(asked.sum()),
            len(yes),
            right / returned if returned else 1.0,
            right / positive if positive else 1.0,
            float(rows[said == yes].sum() / rows.sum()),
        )

    def meets(self, kind: Kind) -> bool:
        """Whether it meets the target of this kind."""
        measured = {
            "precision": self.precision,
            "recall": self.recall,
            "accuracy": self.accuracy,
            "both": min(self.precision, self.recall),
        }
        return measured[kind] >= TARGET - _ROUNDING


def targets(kind: Kind) -> dict[str, float]:
    """As `run_cascade` takes them."""
    names = ("precision", "recall") if kind == "both" else (kind,)
    return dict.fromkeys(names, TARGET)


def ours(case: Case, kind: Kind, seed: int) -> Outcome:
    """relquery's cascade."""

    def ask(calls: list[int]) -> Sequence[bool]:
        answers: list[bool] = case.yes[calls].tolist()
        return answers

    proxy: dict[str, Any] = {"scores": case.scores}
    if case.vectors is not None:
        proxy = {"vectors": case.vectors}
    proxy |= targets(kind)
    result = rq.run_cascade(ask, **proxy, confidence=CONFIDENCE, weights=case.rows, seed=seed)
    return Outcome.of(case, np.array(result.answers), result.asked)


def too_few(kept: int, draws: int) -> float:
    """The probability of at most so many draws that meet the target, if each does with the
    confidence: the one-sided exact test."""
    terms = (
        lgamma(draws + 1)
        - lgamma(index + 1)
        - lgamma(draws - index + 1)
        + index * log(CONFIDENCE)
        + (draws - index) * log1p(-CONFIDENCE)
        for index in range(kept + 1)
    )
    return min(1.0, sum(map(exp, terms)))


def holm(found: Iterable[float]) -> float:
    """The smallest of several p-values after Holm's correction: the first hypothesis to be
    rejected has it times their number."""
    values = list(found)
    return min(1.0, min(values) * len(values))
