"""What `relquery doctor` finds, as tables, as JSON, and as rows to export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from rich.console import Group as Together
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from relquery.cli.ledger.times import instant
from relquery.cli.terminal.records import are_readable, in_lines
from relquery.ledger.caching.causes import Cause
from relquery.ledger.caching.diagnosis import Finding
from relquery.ledger.caching.summary import Group
from relquery.sql.render import printable

_LEFT = ("model", "cause")
_ROWS: Mapping[str, pa.DataType] = {
    "key": pa.string(),
    "run": pa.int64(),
    "model": pa.string(),
    "prefix": pa.string(),
    "prompt_tokens": pa.int64(),
    "expected_tokens": pa.int64(),
    "cached_tokens": pa.int64(),
    "missed_tokens": pa.int64(),
    "usd": pa.float64(),
    "cause": pa.string(),
    "sent": pa.timestamp("us", "UTC"),
    "at": pa.timestamp("us", "UTC"),
}


def as_view(path: str, groups: Sequence[Group], width: int) -> RenderableType:
    """A row for each run and model, then one for each cause, then what the causes mean."""
    shown: list[RenderableType] = [
        _table(_of_groups(groups), printable(f"{path}: {_summary(groups)}"), width)
    ]
    found = list(dict.fromkeys(cause for group in groups for cause in group.causes))
    if found:
        shown += [Text(), _table(_of_causes(groups), "misses by cause", width)]
    for cause in sorted(found, key=list(Cause).index):
        said = Text(f"{cause.title}: ", style="bold")
        shown += [Text(), said.append(f"{cause.meaning} {cause.remedy}", style="not bold")]
    unplanned = sum(group.unplanned for group in groups)
    if unplanned:
        shown += [Text(), Text(f"{_answers(unplanned)} without an expectation: {_OTHERS}")]
    return Together(*shown)


_OTHERS = (
    "a model on this machine, a group of rows, an answer that was asked for once more, or an "
    "earlier version."
)


def _summary(groups: Sequence[Group]) -> str:
    expected = sum(group.expected for group in groups)
    if not expected:
        return "no hits were expected"
    usd = [group.usd for group in groups if group.usd is not None]
    paid = f", which cost {sum(usd):.4f} USD" if usd else ""
    missed = sum(group.missed for group in groups)
    return f"{missed:,} of {expected:,} expected tokens were not read{paid}"


def _of_groups(groups: Sequence[Group]) -> dict[str, list[str]]:
    return {
        "run": [_number(group.run) for group in groups],
        "model": [printable(group.model or "unknown") for group in groups],
        "answers": [f"{group.answers:,}" for group in groups],
        "to read": [f"{group.readers:,}" for group in groups],
        "hits": [f"{group.hits:,}" for group in groups],
        "expected tokens": [f"{group.expected:,}" for group in groups],
        "reported": [f"{group.reported:,}" for group in groups],
        "missed": [f"{group.missed:,}" for group in groups],
        "USD lost": [_usd(group.usd) for group in groups],
    }


def _of_causes(groups: Sequence[Group]) -> dict[str, list[str]]:
    rows = [
        (group, cause, group.causes[cause])
        for group in groups
        for cause in Cause
        if cause in group.causes
    ]
    return {
        "run": [_number(group.run) for group, _, _ in rows],
        "model": [printable(group.model or "unknown") for group, _, _ in rows],
        "cause": [cause.title for _, cause, _ in rows],
        "answers": [f"{one.answers:,}" for _, _, one in rows],
        "tokens": [f"{one.tokens:,}" for _, _, one in rows],
        "USD": [_usd(one.usd) for _, _, one in rows],
    }


def _table(columns: Mapping[str, Sequence[str]], title: str, width: int) -> RenderableType:
    if not are_readable(columns, width):
        return in_lines(columns, title)
    view = Table(show_edge=False, pad_edge=False)
    for name in columns:
        view.add_column(name, justify="left" if name in _LEFT else "right", overflow="fold")
    for row in zip(*columns.values(), strict=True):
        view.add_row(*map(Text, row))
    return Together(Text(title, style="italic"), view)


def as_json(path: str, groups: Sequence[Group]) -> dict[str, Any]:
    """The same; the meaning and remedy of a cause stand beside it."""
    return {
        "ledger": path,
        "runs": [
            {
                "run": group.run,
                "model": group.model,
                "answers": group.answers,
                "without_expectation": group.unplanned,
                "readers": group.readers,
                "hits": group.hits,
                "expected_tokens": group.expected,
                "cached_tokens": group.reported,
                "missed_tokens": group.missed,
                "usd": group.usd,
                "causes": [
                    {
                        "cause": cause.title,
                        "answers": one.answers,
                        "tokens": one.tokens,
                        "usd": one.usd,
                        "meaning": cause.meaning,
                        "remedy": cause.remedy,
                    }
                    for cause, one in group.causes.items()
                ],
            }
            for group in groups
        ],
    }


def as_rows(findings: Sequence[Finding]) -> pa.Table:
    """A row for each answer of which something was expected, or is told why not."""
    rows = [_row(each) for each in findings]
    columns = zip(*rows, strict=True) if rows else ([] for _ in _ROWS)
    return pa.table(
        {
            name: pa.array(values, kind)
            for (name, kind), values in zip(_ROWS.items(), columns, strict=True)
        }
    )


def _row(finding: Finding) -> tuple[Any, ...]:
    one = finding.entry
    prefix = None if one.prefix is None else one.prefix.hex()
    cause = None if finding.cause is None else finding.cause.title
    counts = (one.prompt, finding.expected, one.cached, finding.missed, finding.usd)
    sent = None if one.sent is None else instant(one.sent)
    return (one.key.hex(), one.run, one.model, prefix, *counts, cause, sent, instant(one.came))


def _answers(count: int) -> str:
    return f"{count:,} answer" if count == 1 else f"{count:,} answers"


def _number(run: int | None) -> str:
    return "" if run is None else str(run)


def _usd(usd: float | None) -> str:
    return "" if usd is None else f"{usd:.4f}"
