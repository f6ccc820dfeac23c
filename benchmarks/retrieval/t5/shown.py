"""The tables of the section."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.queries.paper.run import TABLE_ORDER
from benchmarks.retrieval.t5.changed import PLACES, Changed
from benchmarks.retrieval.t5.hits import Hits
from benchmarks.retrieval.t5.run import T5Run

SIDE_COLUMNS = (
    "side",
    "seconds",
    "tokens of a prompt",
    "prompt tokens computed",
    "cached",
    "answer tokens",
)


def side_rows(at: T5Run) -> Iterator[tuple[str, ...]]:
    """The lines under SIDE_COLUMNS."""
    for side, ran in at.sides.items():
        yield (
            "cache, as retrieved" if side == TABLE_ORDER else side,
            f"{ran.seconds:.1f}",
            f"{ran.report.prompt_tokens / ran.report.calls:.0f}",
            f"{ran.computed:,}",
            f"{ran.report.hit_rate:.1%}",
            f"{ran.report.output_tokens:,}",
        )


HIT_COLUMNS = (
    "passages",
    "as retrieved",
    "measured",
    "most",
    "measured, fields alone",
    "solver, in characters",
    "`bench reorder`, in characters",
)


def hit_row(name: str, at: Hits) -> tuple[str, ...]:
    """The line under HIT_COLUMNS."""
    return (
        name,
        f"{at.before:.1%}",
        f"{at.measured:.1%}",
        f"{at.most:.1%}",
        f"{at.of_fields:.1%}",
        f"{at.predicted:.1%}",
        "-" if at.counted is None else f"{at.counted:.1%}",
    )


CHANGED_COLUMNS = ("side", "answers that differ from those as retrieved", "right answers")


def changed_rows(at: Changed) -> Iterator[tuple[str, ...]]:
    """The lines under CHANGED_COLUMNS."""
    for side in PLACES:
        yield side, f"{at.share(side):.0%}", f"{at.right(side)} of {at.answerable}"
