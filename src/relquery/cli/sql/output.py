"""Results of `relquery sql` and its shell: printed, written, and kept."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import typer
from rich.console import Console, Group, RenderableType
from rich.text import Text

from relquery.cli.tables import check_rows, export, is_same, rows_of
from relquery.cli.terminal import errors_console, report_view, result_table, say, table, to_json
from relquery.errors import ConfigError
from relquery.ledger import Ledger
from relquery.sql.exchange.arrow import distinct_names
from relquery.sql.exchange.python import for_csv
from relquery.sql.render import printable, view_of
from relquery.sql.result import Result

if TYPE_CHECKING:
    from relquery.sql.explain.explanation import SqlExplanation
    from relquery.sql.preview import Preview

SHOWN = 50
"""Rows of a table that are shown."""
_SHOWN_ERRORS = 3
_WORDS = ("stage", "model", "answers", "asks")


class Format(Enum):
    """The form in which rows are printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    MARKDOWN = "markdown"


@dataclass(frozen=True, slots=True)
class QueryOutcome:
    """The outcome of a query; what does not apply is None."""

    result: Result
    explanation: SqlExplanation | None = None
    preview: Preview | None = None


def what_is_kept(ledger: Ledger | None, go_on: str = "run the same command to go on") -> str:
    """What to tell the user after an interrupt. go_on: how, where a file keeps the answers."""
    path, kept = (None, 0) if ledger is None else (ledger.path, ledger.stored)
    if not kept:
        return (
            "No new answer is kept: only whole ones are, and above temperature 0 only with --seed."
        )
    if path is None:
        return "Give --ledger FILE to keep what is answered."
    return f"Answers so far are in {path} ({kept} new); {go_on}."


def in_form(result: Result, form: Format) -> str:
    """All rows as CSV, as a JSON list of objects, or as a table in Markdown."""
    if form is Format.CSV:
        import pyarrow.csv as pa_csv

        sink = pa.BufferOutputStream()
        pa_csv.write_csv(for_csv(result.table, distinct_names(result.columns)), sink)
        return sink.getvalue().to_pybytes().decode()  # type: ignore[no-any-return]
    if form is Format.JSON:
        return to_json(rows_of(result)) + "\n"
    rows = [result.columns, ["---"] * len(result.columns), *result.plain()]
    return "".join(f"| {' | '.join(map(_in_markdown, row))} |\n" for row in rows)


def _in_markdown(value: object) -> str:
    text = "NULL" if value is None else str(value)
    lines = text.replace("\\", "\\\\").replace("|", "\\|").splitlines()
    return "<br>".join(map(printable, lines))


def print_errors(result: Result, more: str = "") -> None:
    """Say on standard error what calls of a result cost and which values are missing.

    more: what to do to see all of them.
    """
    console = errors_console()
    if result.report.stages:
        console.print(report_view(result.report, console.width))
    for note in result.report.notes:
        say(note)
    if not result.errors:
        return
    count = len(result.errors)
    what = "1 value is missing" if count == 1 else f"{count} values are missing"
    say(f"{what}; the first:" if count > _SHOWN_ERRORS else f"{what}:", "red")
    for error in result.errors[:_SHOWN_ERRORS]:
        say(printable(f"  {error.stage}, row {error.row}: {error.error}", "\n"))
    if count > _SHOWN_ERRORS and more:
        say(more)


def explanation_view(explanation: SqlExplanation, width: int | None = None) -> RenderableType:
    """A row per call, what is not known left out, and below it how calls would be cheaper.

    width: columns of the terminal; where it is too narrow, each figure has a line of its own.
    """
    if not explanation.calls:
        return Text(str(explanation))
    view = table(explanation.columns(), explanation.title, width, _WORDS)
    return Group(view, *map(Text, explanation.notes))


def rows_view(result: Result, rows: int, width: int | None = None) -> RenderableType:
    """The first rows of a result, or what EXPLAIN has returned."""
    text = view_of(result.table, "text")
    return result_table(result, rows, width) if text is None else Text(text)


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


def print_outcome(outcome: QueryOutcome, form: Format) -> None:
    """Print the rows, or what was explained or measured, on standard output."""
    result, told, preview = outcome.result, outcome.explanation, outcome.preview
    if form is Format.TABLE and told is not None:
        console = Console()
        console.print(explanation_view(told, console.width if told.tells_costs else None))
    elif form is Format.TABLE:
        Console().print(rows_view(result, SHOWN))
    elif form is Format.JSON:
        errors = [{"stage": e.stage, "row": e.row, "error": e.error} for e in result.errors]
        typer.echo(
            to_json({"rows": rows_of(result), "errors": errors, "report": result.report.to_dict()})
        )
    else:
        sys.stdout.buffer.write(in_form(result, form).encode())
        sys.stdout.flush()
    if preview is not None:
        notes, cost = map(Text, preview.notes), explanation_view(preview.cost)
        console = Console() if form is Format.TABLE else errors_console()
        console.print(Group(*notes, Text("\nFor all rows:"), cost))
