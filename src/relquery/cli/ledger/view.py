"""What is in a ledger, as a table, as JSON, and as rows to export."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from relquery.cli.ledger.times import instant, shown_time
from relquery.cli.terminal.records import are_readable, in_lines
from relquery.ledger.records.reading import COLUMNS, Group
from relquery.ledger.records.runs import Run
from relquery.sql.render import printable
from relquery.unicode import valid

_HEADINGS = (
    "run",
    "begun",
    "state",
    "model",
    "answers",
    "failed",
    "attempts",
    "prompt tokens",
    "cached",
    "output",
    "USD",
    "last answer",
)
_LEFT = ("begun", "state", "model", "last answer")
_TYPES = {
    "prompt_tokens": pa.int64(),
    "cached_tokens": pa.int64(),
    "written_tokens": pa.int64(),
    "output_tokens": pa.int64(),
    "attempts": pa.int64(),
    "usd": pa.float64(),
    "at": pa.timestamp("us", "UTC"),
    "seconds": pa.float64(),
    "run": pa.int64(),
}


def as_table(path: str, groups: Sequence[Group], runs: Sequence[Run], width: int) -> RenderableType:
    """A row for each run and model, runs without an answer too. width: of the terminal."""
    known: dict[int | None, Run] = {run.number: run for run in runs}
    with_answers = {group.run for group in groups}
    rows: list[tuple[Run | None, Group | None]] = []
    rows += [(known.get(group.run), group) for group in groups]
    rows += [(run, None) for run in runs if run.number not in with_answers]
    rows.sort(key=lambda row: row[0].number if row[0] else 0)
    cells = [[*_of_run(run), *_of_group(group)] for run, group in rows]
    columns = {name: [row[at] for row in cells] for at, name in enumerate(_HEADINGS)}
    answers, failed = sum(one.answers for one in groups), sum(one.failed for one in groups)
    usd = [one.usd for one in groups if one.usd is not None]
    paid = f", {sum(usd):.4f} USD" if usd else ""
    total = f"{path}: {_many(answers, 'answer')}, {_many(failed, 'failed call')}{paid}"
    if not are_readable(columns, width):
        return in_lines(columns, printable(total))
    view = Table(show_edge=False, pad_edge=False, title=Text(printable(total)))
    for name in columns:
        view.add_column(name, justify="left" if name in _LEFT else "right", overflow="fold")
    for row in cells:
        view.add_row(*map(Text, row))
    return view


def _of_run(run: Run | None) -> list[str]:
    return (
        ["", "", ""] if run is None else [str(run.number), shown_time(run.begun), run.state.value]
    )


def _of_group(group: Group | None) -> list[str]:
    if group is None:
        return [""] * (len(_HEADINGS) - 3)
    return [
        printable(group.model or "unknown"),
        f"{group.answers:,}",
        f"{group.failed:,}",
        _count(group.attempts),
        f"{group.prompt_tokens:,}",
        _count(group.cached_tokens),
        f"{group.output_tokens:,}",
        "" if group.usd is None else f"{group.usd:.4f}",
        shown_time(group.last),
    ]


def _count(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def as_json(path: str, groups: Sequence[Group], runs: Sequence[Run]) -> dict[str, Any]:
    """The same, with the statements of runs. Times are ISO texts in UTC."""
    return {
        "ledger": path,
        "runs": [
            {
                "run": run.number,
                "begun": _iso(run.begun),
                "ended": _iso(run.ended),
                "state": run.state.value,
                "query": run.query,
                "options": dict(run.options),
            }
            for run in runs
        ],
        "models": [
            asdict(group) | {"first": _iso(group.first), "last": _iso(group.last)}
            for group in groups
        ],
    }


def as_rows(entries: Sequence[Sequence[Any]]) -> pa.Table:
    """Answers and failures as rows; see COLUMNS. What is not known is null."""
    names = COLUMNS.split(", ")
    columns = dict(zip(names, zip(*entries, strict=True), strict=True)) if entries else {}
    arrays = {}
    for name in names:
        values = columns.get(name, ())
        if name == "at":
            values = tuple(None if one is None else instant(one) for one in values)
        elif name not in _TYPES:
            values = tuple(one and valid(one) for one in values)
        arrays[name] = pa.array(values, _TYPES.get(name, pa.string()))
    return pa.table(arrays)


def _iso(seconds: float | None) -> str | None:
    return None if seconds is None else instant(seconds).isoformat()
