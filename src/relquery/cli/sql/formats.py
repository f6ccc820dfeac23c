"""The forms in which the rows of a result are printed and written."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any

import pyarrow as pa

from relquery.cli.terminal.records import report_view
from relquery.cli.terminal.show import errors_console, to_json
from relquery.sql.exchange.arrow import distinct_names
from relquery.sql.exchange.python import for_csv
from relquery.sql.render import printable
from relquery.sql.result import Result

SHOWN = 50
"""Rows of a table that are shown."""


class Format(Enum):
    """How rows are printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    MARKDOWN = "markdown"


def rows_of(result: Result) -> list[dict[str, Any]]:
    """A dict per row; names that repeat get a suffix."""
    names = _names(result)
    return [dict(zip(names, row, strict=True)) for row in result.plain()]


def as_csv(result: Result) -> str:
    """All rows as CSV."""
    import pyarrow.csv as pa_csv

    sink = pa.BufferOutputStream()
    pa_csv.write_csv(for_csv(result.table, _names(result)), sink)
    return sink.getvalue().to_pybytes().decode()  # type: ignore[no-any-return]


def as_json(result: Result) -> str:
    """All rows as a JSON list of objects."""
    return to_json(rows_of(result)) + "\n"


def as_markdown(result: Result) -> str:
    """All rows as a table in Markdown."""
    rows = [result.columns, ["---"] * len(result.columns), *result.plain()]
    return "".join(f"| {' | '.join(map(_in_markdown, row))} |\n" for row in rows)


def _in_markdown(value: object) -> str:
    text = "NULL" if value is None else str(value)
    lines = text.replace("\\", "\\\\").replace("|", "\\|").splitlines()
    return "<br>".join(map(printable, lines))


TEXTS = {Format.CSV: as_csv, Format.JSON: as_json, Format.MARKDOWN: as_markdown}


def print_errors(result: Result, more: str = "") -> None:
    """Say on standard error what calls of a result cost and which values are missing.

    more: what to do to see all of them.
    """
    console = errors_console()
    if result.report.stages:
        console.print(report_view(result.report, console.width))
    if result.errors:
        count = len(result.errors)
        what = "1 value is missing" if count == 1 else f"{count} values are missing"
        console.print(f"{what}; the first:" if count > 3 else f"{what}:", style="red")
        for error in result.errors[:3]:
            text = printable(f"  {error.stage}, row {error.row}: {error.error}", "\n")
            console.print(text, markup=False, highlight=False)
        if count > 3 and more:
            console.print(more, markup=False, highlight=False)


def _names(result: Result) -> list[str]:
    return distinct_names(result.columns)


def write_json(result: Result, path: Path) -> None:
    """Write all rows to a file."""
    path.write_text(to_json(rows_of(result)), encoding="utf-8")


WRITERS = {".parquet": Result.write_parquet, ".csv": Result.write_csv, ".json": write_json}
"""By the ending of a file's name."""
