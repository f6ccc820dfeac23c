"""What EXPLAIN (COST) shows and returns: a row per stage, and their total."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from relquery.sql.explain.cost.estimate import FIGURES, StageCost
from relquery.sql.explain.cost.lengths import Range

TOTAL = "total"
_TITLES = {
    "calls": "calls",
    "input": "input tokens",
    "cached": "cached",
    "output": "output tokens",
    "seconds": "seconds",
    "live": "USD",
    "table": "USD in table order",
    "batch": "USD as a batch",
}
_COLUMNS = {
    "calls": "calls",
    "input": "input_tokens",
    "cached": "cached_tokens",
    "output": "output_tokens",
    "seconds": "seconds",
    "live": "usd",
    "table": "usd_table_order",
    "batch": "usd_batch",
}
_COUNTS = ("calls", "input", "cached", "output")
_LENGTHS = {
    "answers": "as long as those that are known",
    "type": "as long as their type makes them",
    "assumed": "of no known length",
}

COST_SCHEMA = pa.schema(
    [
        ("stage", pa.string()),
        *(
            (f"{name}{bound}", pa.float64())
            for name in _COLUMNS.values()
            for bound in ("_low", "", "_high")
        ),
        ("answers", pa.string()),
        ("note", pa.string()),
    ]
)
"""One row per stage, and one for all. NULL for what is not known."""

Costs = Mapping[str, StageCost | None]
"""By stage; None where nothing is known before the run."""


def with_total(costs: Costs) -> dict[str, StageCost | None]:
    """The stages, and their sum if there are several; None if one of them is not known."""
    found = dict(costs)
    if len(costs) < 2:
        return found
    total: StageCost | None = None
    for at, one in enumerate(costs.values()):
        if one is None:
            return found | {TOTAL: None}
        total = one if at == 0 or total is None else total.plus(one)
    return found | {TOTAL: None if total is None else replace(total, unshared=None)}


def columns(costs: Costs) -> dict[str, list[str]]:
    """Cells to show, by title; what is not known of any stage is left out."""
    rows = with_total(costs)
    shown = {"stage": list(rows)}
    for name, title in _TITLES.items():
        ranges = [None if one is None else getattr(one, name) for one in rows.values()]
        shown[title] = [_cell(name, one) for one in ranges]
    return {title: cells for title, cells in shown.items() if any(cells)}


def table(costs: Costs, notes: Sequence[str]) -> pa.Table:
    """As a table of COST_SCHEMA. notes: about all stages; they stand at the first one."""
    rows = [
        {"stage": name, **_row(one), "note": "; ".join(_own(one, notes if at == 0 else ())) or None}
        for at, (name, one) in enumerate(with_total(costs).items())
    ]
    return pa.Table.from_pylist(rows, COST_SCHEMA)


def _row(cost: StageCost | None) -> dict[str, Any]:
    if cost is None:
        return {}
    row: dict[str, Any] = {"answers": cost.length.source}
    for name in FIGURES:
        found: Range | None = getattr(cost, name)
        if found is not None:
            column = _COLUMNS[name]
            row[f"{column}_low"], row[f"{column}_high"] = found.low, found.high
            row[column] = found.expected
    return row


def _own(cost: StageCost | None, notes: Sequence[str]) -> list[str]:
    own = [] if cost is None or cost.unshared is None else [str(cost.unshared)]
    return [*own, *notes]


def notes(costs: Costs) -> Iterator[str]:
    """What the figures rest on."""
    known = {name: one for name, one in costs.items() if one is not None}
    for name, one in known.items():
        tokens = one.length.tokens
        if one.calls.high:
            yield (
                f"{name}: answers {_LENGTHS[one.length.source]} are taken to have "
                f"{tokens.expected:,.0f} tokens ({tokens.low:,.0f} to {tokens.high:,.0f})"
            )
    told = {one.calibration.told for one in known.values() if one.calibration is not None}
    yield from sorted(text[0].upper() + text[1:] for text in told)
    yield from reasoning(known)
    if any(one.batch is not None for one in known.values()):
        yield "A batch is answered within 24 hours; what its requests share may not be cached"


def reasoning(costs: Costs) -> Iterator[str]:
    """That expected figures leave out what a model thinks, if one does."""
    if any(one.reasons for one in costs.values() if one is not None):
        yield (
            "The model reasons before it answers, and bills that as output. Only the high figure "
            "counts it, up to max_tokens; `preview` measures it"
        )


def _cell(name: str, figure: Range | None) -> str:
    if figure is None:
        return ""
    texts = [_written(name, one) for one in (figure.expected, figure.low, figure.high)]
    middle, low, high = texts
    return middle if low == high == middle else f"{middle} ({low} to {high})"


def _written(name: str, value: float) -> str:
    """Whole tokens, calls and large figures; two digits of small ones."""
    if name in _COUNTS or value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value >= 1 or not value else f"{value:#.2g}"
