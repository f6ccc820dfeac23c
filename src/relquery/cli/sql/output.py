"""Prints and writes what `relquery sql` has come to."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import typer
from rich.console import Console, Group, RenderableType
from rich.text import Text

from relquery.cli.sql.running import Outcome
from relquery.cli.terminal.console import errors_console
from relquery.cli.terminal.show import (
    figures,
    report_view,
    result_table,
    say,
    to_json,
)
from relquery.cli.terminal.tables import check_rows, export, is_same, rows_of
from relquery.errors import ConfigError
from relquery.sql.exchange.arrow import distinct_names
from relquery.sql.exchange.python import for_csv
from relquery.sql.render import printable, view_of
from relquery.sql.result import Result

if TYPE_CHECKING:
    from relquery.sql.explain.explanation import SqlExplanation
    from relquery.sql.preview import Preview

SHOWN = 50
"""Rows of a table that are shown."""


class Format(Enum):
    """How rows are printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    MARKDOWN = "markdown"


def as_csv(result: Result) -> str:
    """All rows as CSV."""
    import pyarrow.csv as pa_csv

    sink = pa.BufferOutputStream()
    pa_csv.write_csv(for_csv(result.table, distinct_names(result.columns)), sink)
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
    for note in result.report.notes:
        console.print(note, markup=False, highlight=False)
    if result.errors:
        count = len(result.errors)
        what = "1 value is missing" if count == 1 else f"{count} values are missing"
        console.print(f"{what}; the first:" if count > 3 else f"{what}:", style="red")
        for error in result.errors[:3]:
            text = printable(f"  {error.stage}, row {error.row}: {error.error}", "\n")
            console.print(text, markup=False, highlight=False)
        if count > 3 and more:
            console.print(more, markup=False, highlight=False)


_WORDS = ("stage", "model", "answers", "asks")


def explanation_view(explanation: SqlExplanation, width: int | None = None) -> Group | Text:
    """A row per call, what is not known left out, and below it how calls would be cheaper.

    width: columns of the terminal; where it is too narrow, each figure has a line of its own.
    """
    if not explanation.calls:
        return Text(str(explanation))
    view = figures(explanation.columns(), explanation.title, width, _WORDS)
    return Group(view, *map(Text, explanation.notes))


def whole(preview: Preview) -> Group:
    """What a preview says of all rows."""
    notes = map(Text, preview.notes)
    return Group(*notes, Text("\nFor all rows:"), explanation_view(preview.cost))


def drawn(table: pa.Table) -> RenderableType:
    """What EXPLAIN of calls among other statements returns, or EXPLAIN ANALYZE: a row per stage."""
    # Imported here: most queries are not explained.
    from relquery.sql.explain.explanation import (
        ANALYSIS_TITLE,
        analysis_cells,
        analysis_notes,
        is_analysis,
    )

    if is_analysis(table):
        view = figures(dict(analysis_cells(table)), ANALYSIS_TITLE, None, _WORDS)
        return Group(view, *map(Text, analysis_notes(table)))
    return Text(view_of(table, "text") or "")


def check_overwritten(path: Path, tables: Mapping[str, Path]) -> None:
    """Whether rows can be written there, before they have cost anything. Raises ConfigError."""
    for name, source in tables.items():
        if is_same(path, source):
            raise ConfigError(
                f"--output {path} would overwrite the table '{name}'. Give another file name."
            )
    check_rows(path)


def save(result: Result, output: Path | None, html: Path | None) -> None:
    """Write what the options ask for, and say so on standard error."""
    if output is not None:
        export(result, output)
    if html is not None:
        result.write_html(html)
        say(f"Wrote the page to {html}.")


def print_outcome(outcome: Outcome, form: Format) -> None:
    """Print the rows, or what was explained or measured, on standard output."""
    result = outcome.result
    if form is Format.TABLE and outcome.explanation is not None:
        console = Console()
        width = console.width if outcome.explanation.tells_costs else None
        console.print(explanation_view(outcome.explanation, width))
    elif form is Format.TABLE and view_of(result.table, "text") is not None:
        Console().print(drawn(result.table))
    elif form is Format.TABLE:
        Console().print(result_table(result, SHOWN))
    elif form is Format.CSV:
        import pyarrow.csv as pa_csv

        pa_csv.write_csv(for_csv(result.table, distinct_names(result.columns)), sys.stdout.buffer)
    elif form is Format.MARKDOWN:
        typer.echo(as_markdown(result), nl=False)
    else:
        report = result.report.to_dict()
        errors = [{"stage": e.stage, "row": e.row, "error": e.error} for e in result.errors]
        typer.echo(to_json({"rows": rows_of(result), "errors": errors, "report": report}))
    if outcome.preview is not None:
        console = Console() if form is Format.TABLE else errors_console()
        console.print(whole(outcome.preview))
