"""The quality of a query: accuracy, scores per label, confusion, and the wrong rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa

from relquery.errors import ConfigError, QueryError, type_of
from relquery.evaluation.columns import Matching, ScoredColumns, is_number
from relquery.evaluation.comparison import Comparison, compared
from relquery.evaluation.threshold import Threshold, check_precision, chosen
from relquery.html import boxed, lines, of_columns
from relquery.report import Report, in_columns, wilson_interval
from relquery.sql.result import Result

Confusion = Mapping[tuple[Any, Any], int]
"""How many rows have each (right answer, prediction); the prediction is None without an answer."""


@dataclass(frozen=True, slots=True)
class LabelScore:
    """One label."""

    label: Any
    hits: int
    """Rows that have it and for which it was predicted."""
    predicted: int
    """Rows for which it was predicted."""
    support: int
    """Rows that have it, including those without an answer."""

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
        LabelScore(name, confusion.get((name, name), 0), predicted[name], support[name])
        for name in names
    )


def _in_order(label: Any) -> tuple[bool, Any]:
    is_text = isinstance(label, str)
    return is_text, label


_LABELS = 12
"""Labels that are shown. A confusion matrix of more cannot be read."""


def text_of(scores: Evaluation) -> str:
    """For terminals."""
    parts = [
        _title(scores),
        *(in_columns(columns, numbers=True) for columns in _tables(scores)),
        *_notes(scores),
    ]
    return "\n".join(parts)


def html_of(scores: Evaluation) -> str:
    """For notebooks."""
    tables = [of_columns(columns, list(columns)[:1]) for columns in _tables(scores)]
    return boxed(lines([_title(scores)]), *tables, lines(_notes(scores)))


def _title(scores: Evaluation) -> str:
    if scores.accuracy is None or scores.interval is None:
        return "No row has a right answer"
    low, high = scores.interval
    mean = "" if scores.macro_f1 is None else f", mean F1 {scores.macro_f1:.3f}"
    return (
        f"accuracy {scores.accuracy:.3f} ({low:.3f} to {high:.3f}), "
        f"{scores.right:,} of {scores.rows:,} rows{mean}"
    )


def _notes(scores: Evaluation) -> Iterator[str]:
    if len(scores.labels) > _LABELS:
        yield f"The {_LABELS} most frequent of {len(scores.labels):,} labels are shown."
    yield from scores.notes


def _tables(scores: Evaluation) -> Iterator[dict[str, list[str]]]:
    """Tables as columns of cells by title: the scores of labels, and the confusion."""
    labels = _shown(scores.labels)
    if not labels:
        return
    yield {
        "label": [str(label.label) for label in labels],
        "precision": [_share(label.precision) for label in labels],
        "recall": [_share(label.recall) for label in labels],
        "F1": [_share(label.f1) for label in labels],
        "rows": [f"{label.support:,}" for label in labels],
    }
    if len(scores.labels) <= _LABELS:
        yield _matrix(labels, scores.confusion)


def _matrix(labels: Sequence[LabelScore], confusion: Confusion) -> dict[str, list[str]]:
    """A row per right answer, a column per prediction."""
    rights = [label.label for label in labels]
    said = [*rights, *([None] if any(predicted is None for _, predicted in confusion) else [])]
    columns = {
        "no answer" if column is None else f"says {column}": [
            f"{confusion.get((right, column), 0):,}" for right in rights
        ]
        for column in said
    }
    return {"right answer": list(map(str, rights)), **columns}


def _shown(labels: Sequence[LabelScore]) -> list[LabelScore]:
    if len(labels) <= _LABELS:
        return list(labels)
    return sorted(labels, key=lambda one: -one.support)[:_LABELS]


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


Verdict = Literal["right", "wrong", "unanswered", "unknown"]
"""Of a row: "unanswered" if it has no prediction, "unknown" if it has no right answer."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Evaluation:
    """A query scored against right answers."""

    result: Result
    """What the query returned."""
    columns: ScoredColumns
    matching: Matching
    verdicts: tuple[Verdict, ...]
    """A verdict on each row of the result."""
    confusion: Confusion
    """How many rows have each (right answer, prediction); the prediction is None for rows without
    an answer."""
    labels: tuple[LabelScore, ...]
    """The scores of each label; empty if numbers are compared with a tolerance."""
    error: float | None = None
    """The mean absolute difference of numbers; None for other values."""
    threshold: Threshold | None = None
    """The score from which on rows count as true, if the predictions are scores and the right
    answers booleans."""

    @classmethod
    def of(
        cls,
        result: Result,
        columns: ScoredColumns,
        matching: Matching,
        precision: float | None = None,
    ) -> Evaluation:
        """Compare the columns of a result. precision: that a threshold for scores must have."""
        threshold, is_scored = None, columns.has_scores
        check_precision(precision, is_scored=is_scored)
        if is_scored:
            threshold, columns = _with_threshold(columns, precision)
        matching.check(columns.predictions, columns.truths)
        pairs = list(zip(columns.predictions, columns.truths, strict=True))
        verdicts = tuple(_verdict(said, right, matching) for said, right in pairs)
        confusion = Counter[tuple[Any, Any]]()
        labels: tuple[LabelScore, ...] = ()
        if matching.tolerance is None:
            confusion.update(_labelled(pairs, matching))
            labels = label_scores(confusion)
        error = _mean_error(pairs)
        return cls(result, columns, matching, verdicts, confusion, labels, error, threshold)

    @property
    def rows(self) -> int:
        """Rows with a right answer: those that count."""
        return len(self.verdicts) - self.unknown

    @property
    def right(self) -> int:
        """Rows whose prediction is right."""
        return self.verdicts.count("right")

    @property
    def wrong(self) -> int:
        """Rows whose prediction is wrong."""
        return self.verdicts.count("wrong")

    @property
    def unanswered(self) -> int:
        """Rows with a right answer and without a prediction. They are never right."""
        return self.verdicts.count("unanswered")

    @property
    def unknown(self) -> int:
        """Rows without a right answer. They do not count."""
        return self.verdicts.count("unknown")

    @property
    def accuracy(self) -> float | None:
        """Share of `rows` that are right, 0 to 1; None if there are none."""
        return self.right / self.rows if self.rows else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95% confidence interval of the accuracy (Wilson 1927)."""
        return None if self.accuracy is None else wilson_interval(self.accuracy, self.rows)

    @property
    def macro_f1(self) -> float | None:
        """The mean F1 of all labels; None without labels."""
        return sum(label.f1 for label in self.labels) / len(self.labels) if self.labels else None

    @property
    def wrong_rows(self) -> Result:
        """The rows of the result whose prediction is wrong."""
        return self._with("wrong")

    @property
    def unanswered_rows(self) -> Result:
        """The rows of the result without a prediction."""
        return self._with("unanswered")

    def _with(self, verdict: Verdict) -> Result:
        chosen = [index for index, ours in enumerate(self.verdicts) if ours == verdict]
        table = self.result.table.take(pa.array(chosen, pa.int64()))
        places = {row: place for place, row in enumerate(chosen)}
        reasons = {
            (places[row], column): why
            for (row, column), why in self.result.reasons.items()
            if row in places
        }
        return replace(self.result, table=table, errors=(), report=Report(), reasons=reasons)

    def compare(self, other: Evaluation) -> Comparison:
        """Compare with another evaluation of the same rows, which are paired by their keys.

        Raises ConfigError for anything else, without keys, or if no key is in both; QueryError if a
        right answer differs.
        """
        if not isinstance(other, Evaluation):
            raise ConfigError(
                f"compare got {type_of(other)}; it must get another evaluation. Write "
                "first.compare(second), both from rq.evaluate(..., key='column')."
            )
        return compared(self._by_key(), other._by_key())

    def _by_key(self) -> dict[tuple[Any, ...], tuple[Any, bool]]:
        """(the right answer, whether the prediction is right) of each row that counts."""
        by_key = {}
        for index, verdict in enumerate(self.verdicts):
            if verdict != "unknown":
                by_key[self.columns.keys[index]] = self.columns.truths[index], verdict == "right"
        return by_key

    @property
    def notes(self) -> list[str]:
        """How rows were counted, in sentences."""
        return [note for note in self._notes() if note]

    def _notes(self) -> Iterator[str | None]:
        if self.threshold is not None:
            yield str(self.threshold)
        if self.unanswered:
            yield f"{_rows(self.unanswered)} without an answer: counted as not right."
        if self.unknown:
            yield f"{_rows(self.unknown)} without a right answer: left out."
        if self.error is not None:
            yield f"The mean absolute difference is {self.error:.4g}."
        yield self.matching.note

    def __repr__(self) -> str:
        return text_of(self)

    def _repr_html_(self) -> str:
        """For notebooks."""
        return html_of(self)


def _verdict(said: Any, right: Any, matching: Matching) -> Verdict:
    if right is None:
        return "unknown"
    if said is None:
        return "unanswered"
    return "right" if matching.is_right(said, right) else "wrong"


def _with_threshold(
    columns: ScoredColumns, precision: float | None
) -> tuple[Threshold, ScoredColumns]:
    """The threshold for scores, and what they then predict. Raises QueryError if there is none."""
    pairs = zip(columns.predictions, columns.truths, strict=True)
    known = [(float(said), right) for said, right in pairs if None not in (said, right)]
    threshold = chosen([said for said, _ in known], [right for _, right in known], precision)
    if threshold is None:
        raise QueryError(
            "There is no threshold for these scores: "
            + (
                f"none has a precision of {precision:g}. Ask for less, or for other scores."
                if len({right for _, right in known}) > 1 and precision is not None
                else "the rows with a score need right answers that are true and some that are "
                "false."
            )
        )
    said = [
        None if prediction is None else float(prediction) >= threshold.value
        for prediction in columns.predictions
    ]
    return threshold, replace(columns, predictions=said)


def _labelled(pairs: Iterable[tuple[Any, Any]], matching: Matching) -> Iterator[tuple[Any, Any]]:
    """(right answer, prediction) of the rows that count, after normalisation."""
    for said, right in pairs:
        if right is not None:
            yield matching.label(right), None if said is None else matching.label(said)


def _mean_error(pairs: Iterable[tuple[Any, Any]]) -> float | None:
    differences = [
        abs(float(said) - float(right))
        for said, right in pairs
        if is_number(said) and is_number(right)
    ]
    return sum(differences) / len(differences) if differences else None


def _rows(count: int) -> str:
    return f"{count:,} {'row' if count == 1 else 'rows'}"
