"""Precision, recall and F1 of each label, from counts of (right answer, prediction)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Confusion = Mapping[tuple[Any, Any], int]
"""How many rows have each (right answer, prediction); the prediction is None without an answer."""


@dataclass(frozen=True, slots=True)
class LabelScore:
    """One label. hits: rows that have it and for which it was predicted. predicted: rows for which
    it was predicted. support: rows that have it, including those without an answer.
    """

    label: Any
    hits: int
    predicted: int
    support: int

    @property
    def precision(self) -> float | None:
        """Share of the rows with this prediction that have the label; None if there are none."""
        return self.hits / self.predicted if self.predicted else None

    @property
    def recall(self) -> float | None:
        """Share of the rows with this label that were predicted; None if there are none."""
        return self.hits / self.support if self.support else None

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall, 0 if either is not defined."""
        return 2 * self.hits / (self.predicted + self.support)


def label_scores(confusion: Confusion) -> tuple[LabelScore, ...]:
    """The scores of all labels that are the right answer or predicted somewhere, sorted."""
    support, predicted = Counter[Any](), Counter[Any]()
    for (right, said), count in confusion.items():
        support[right] += count
        if said is not None:
            predicted[said] += count
    names = sorted(support.keys() | predicted.keys(), key=_in_order)
    return tuple(
        LabelScore(one, confusion.get((one, one), 0), predicted[one], support[one]) for one in names
    )


def _in_order(label: Any) -> tuple[bool, Any]:
    is_text = isinstance(label, str)
    return is_text, label
