"""What EXPLAIN ANALYZE returns: per stage, what was predicted and what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from relquery.html.table import boxed, lines, of_columns
from relquery.report import StageReport, in_columns
from relquery.sql.explain.explanation import ExplainedCall
from relquery.sql.render import with_view

TITLE = "Predicted, given the rows that passed / measured"
COMPARED = {
    "rows": pa.int64(),
    "calls": pa.int64(),
    "from_ledger": pa.int64(),
    "prompt_tokens": pa.int64(),
    "hit_rate": pa.float64(),
    "seconds": pa.float64(),
}
"""What is compared, and its type."""

_NAMES = {"from_ledger": "ledger_hits"}  # in reports

SCHEMA = pa.schema(
    [
        ("stage", pa.string()),
        ("prompt", pa.string()),
        ("fields", pa.string()),
        *(
            pair
            for name, kind in COMPARED.items()
            for pair in ((f"predicted_{name}", kind), (name, kind))
        ),
        ("output_tokens", pa.int64()),
        ("errors", pa.int64()),
        ("order", pa.string()),
    ]
)
"""One row per stage, in the order in which they ran. NULL for what could not be predicted."""


def compared(predicted: Mapping[str, ExplainedCall], measured: Iterable[StageReport]) -> pa.Table:
    """A row per stage of the run."""
    rows = []
    for stage in measured:
        call = predicted.get(stage.name)
        row: dict[str, Any] = {
            "stage": stage.name,
            "prompt": stage.expression if call is None else call.prompt,
            "fields": None if call is None else call.fields,
            "output_tokens": stage.output_tokens,
            "errors": stage.errors,
            "order": stage.order if call is None else call.order,
        }
        row |= {name: getattr(stage, _NAMES.get(name, name)) for name in COMPARED}
        row["hit_rate"] = stage.hit_rate if stage.prompt_tokens else None
        if call is not None:
            row |= {f"predicted_{name}": value for name, value in _predicted(call).items()}
        rows.append(row)
    table = pa.Table.from_pylist(rows, SCHEMA)
    shown = {title: list(column) for title, column in cells(table)}
    html = boxed(lines([TITLE]), of_columns(shown, ("stage", "asks")))
    return with_view(table, f"{TITLE}\n{in_columns(shown)}", html)


def _predicted(call: ExplainedCall) -> dict[str, int | float | None]:
    work = call.effort
    return {
        "rows": call.rows,
        "calls": call.calls,
        "from_ledger": call.from_ledger,
        "prompt_tokens": None if work is None else work.prompt_tokens,
        "hit_rate": call.hit_rate,
        "seconds": None if work is None else work.seconds,
    }


def is_analysis(table: pa.Table) -> bool:
    """Whether a table is what EXPLAIN ANALYZE of a query with calls returns."""
    return bool(table.schema.equals(SCHEMA))


def cells(table: pa.Table) -> Iterator[tuple[str, Sequence[str]]]:
    """What to show, column by column with its title: `predicted / measured`.

    Of what is predicted of no stage, only what was measured.
    """
    columns = dict(zip(table.column_names, (one.to_pylist() for one in table.columns), strict=True))
    yield "stage", columns["stage"]
    for name in COMPARED:
        if name == "from_ledger" and not any((*columns[f"predicted_{name}"], *columns[name])):
            continue
        said, found = (
            [_written(name, value) for value in columns[title]]
            for title in (f"predicted_{name}", name)
        )
        if any(said):
            found = [f"{one or '?'} / {other}" for one, other in zip(said, found, strict=True)]
        yield name.replace("_", " "), found
    yield (
        "asks",
        [
            f"{prompt} ({fields})" if fields else prompt
            for prompt, fields in zip(columns["prompt"], columns["fields"], strict=True)
        ],
    )


def _written(name: str, value: float | None) -> str:
    if value is None:
        return ""
    if name == "hit_rate":
        return f"{value:.1%}"
    return f"{value:.2f}" if name == "seconds" else f"{value:,}"
