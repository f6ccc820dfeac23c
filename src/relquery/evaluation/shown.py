"""An evaluation as text and in a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from relquery.evaluation.labels import Confusion, LabelScore
from relquery.html.table import boxed, lines, of_columns

_LABELS = 12
"""Labels that are shown. A confusion matrix of more cannot be read."""


class Scores(Protocol):
    """The parts of an evaluation that are shown."""

    @property
    def accuracy(self) -> float | None: ...
    @property
    def interval(self) -> tuple[float, float] | None: ...
    @property
    def right(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def macro_f1(self) -> float | None: ...
    @property
    def labels(self) -> Sequence[LabelScore]: ...
    @property
    def confusion(self) -> Confusion: ...
    @property
    def notes(self) -> Sequence[str]: ...


def text_of(scores: Scores) -> str:
    """For terminals."""
    parts = [_title(scores), *(_aligned(columns) for columns in _tables(scores)), *_notes(scores)]
    return "\n".join(parts)


def html_of(scores: Scores) -> str:
    """For notebooks."""
    tables = [of_columns(columns, list(columns)[:1]) for columns in _tables(scores)]
    return boxed(lines([_title(scores)]), *tables, lines(_notes(scores)))


def _title(scores: Scores) -> str:
    if scores.accuracy is None or scores.interval is None:
        return "No row has a right answer"
    low, high = scores.interval
    mean = "" if scores.macro_f1 is None else f", mean F1 {scores.macro_f1:.3f}"
    return (
        f"accuracy {scores.accuracy:.3f} ({low:.3f} to {high:.3f}), "
        f"{scores.right:,} of {scores.rows:,} rows{mean}"
    )


def _notes(scores: Scores) -> Iterator[str]:
    if len(scores.labels) > _LABELS:
        yield f"The {_LABELS} most frequent of {len(scores.labels):,} labels are shown."
    yield from scores.notes


def _tables(scores: Scores) -> Iterator[dict[str, list[str]]]:
    """Tables as columns of cells by title: the scores of labels, and the confusion."""
    labels = _shown(scores.labels)
    if not labels:
        return
    yield {
        "label": [str(one.label) for one in labels],
        "precision": [_share(one.precision) for one in labels],
        "recall": [_share(one.recall) for one in labels],
        "F1": [_share(one.f1) for one in labels],
        "rows": [f"{one.support:,}" for one in labels],
    }
    if len(scores.labels) <= _LABELS:
        yield _matrix(labels, scores.confusion)


def _matrix(labels: Sequence[LabelScore], confusion: Confusion) -> dict[str, list[str]]:
    """A row per right answer, a column per prediction."""
    rights = [one.label for one in labels]
    said = [*rights, *([None] if any(one is None for _, one in confusion) else [])]
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


def _aligned(columns: dict[str, list[str]]) -> str:
    """The first column aligned left, the others, which are numbers, aligned right."""
    lists = [[title, *cells] for title, cells in columns.items()]
    widths = [max(map(len, one)) for one in lists]
    rows = zip(*lists, strict=True)
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    )
