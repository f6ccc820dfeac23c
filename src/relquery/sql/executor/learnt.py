"""Where a stage has told no row from another: one answer for all, or scores that lie together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from relquery.prompt import Compared
from relquery.report import StageReport
from relquery.sql.binder.call import Task
from relquery.sql.executor.rows import Rows

LEAST = 50
"""Distinct inputs from which on it is told."""
BAND = 0.1
"""Of the range that scores may have: if all of them lie within such a part, they do not separate
the rows."""


def unlearnt(rows: Rows, stages: Mapping[str, StageReport]) -> Iterator[tuple[str, str]]:
    """(stage, what to say of it) for stages of a SELECT by which nothing was learnt."""
    for call in rows.plan.calls:
        columns = rows.of_call(call.index)
        names, values = columns.stages[columns.asked], columns.values[columns.asked]
        for name in dict.fromkeys(names.tolist()):
            stage = stages[name]
            if stage.calls + stage.ledger_hits - (stage.compared or 0) < LEAST:
                continue
            known = [value for value in values[names == name].tolist() if value is not None]
            note = _note(call.task, known) if len(known) >= LEAST else None
            if note is not None:
                yield name, note


def _note(task: Task, values: Sequence[str]) -> str | None:
    sampling = task.sampling
    if task.kind == "score":
        return _of_scores(sampling.labels, list(map(float, values)))
    texts = sampling.texts if isinstance(sampling, Compared) else sampling.labels
    if task.kind != "row" or not texts:
        return None
    found = {value if value in texts else "another text" for value in values}
    if len(found) > 1:
        return None
    return (
        f"all {len(values):,} rows have the same answer ({found.pop()}), so nothing was learnt. "
        "AI_SCORE with this question shows how near the others come; try other words or a larger "
        "model."
    )


def _of_scores(labels: Sequence[str], scores: Sequence[float]) -> str | None:
    try:
        numbers = [float(label) for label in labels]
        width = max(numbers) - min(numbers)
    except ValueError:
        width = 1.0
    low, high = min(scores), max(scores)
    if high - low >= BAND * width or not width:
        return None
    return (
        f"all {len(scores):,} scores are between {low:.3g} and {high:.3g}, which hardly tells rows "
        "apart. rq.evaluate finds a threshold from rows with right answers; try other words or a "
        "larger model."
    )
