"""Results of `relquery sql` and its shell: printed, written, and kept."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
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
from relquery.progress.watch import Watch
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


@dataclass(slots=True)
class Came:
    """Answers to a query that have come."""

    answers: int = 0
    """Of the model."""
    known: int = 0
    """Of the ledger, which knew them before."""
    _done: dict[str, int] = field(default_factory=dict)

    def counting(self, watch: Watch) -> Watch:
        """Also report progress: new answers one at a time, known ones all at once."""

        def count(stage: str, done: int, total: int) -> None:
            more = done - self._done.get(stage, 0)
            if stage in self._done and more == 1:
                self.answers += 1
            else:
                self.known += more
            self._done[stage] = done

        return watch.after(count)


def what_is_kept(
    ledger: Ledger | None, came: Came, go_on: str = "run the same command to go on"
) -> str:
    """What to tell the user after an interrupt. go_on: how, where a file keeps the answers."""
    kept = 0 if ledger is None else ledger.stored
    if not kept and not came.answers:
        if came.known and ledger is not None and ledger.path is not None:
            return (
                f"No new answer had arrived; the {came.known} known ones stay in {ledger.path}. "
                f"{go_on[0].upper()}{go_on[1:]}."
            )
        return "No answer had arrived."
    if not kept:
        return (
            "No answer of this run is kept: only whole ones are, and above temperature 0 only with "
            "--seed."
        )
    if ledger is None or ledger.path is None:
        return "Give --ledger FILE to keep what is answered."
    return f"Answers so far are in {ledger.path} ({kept} new); {go_on}."


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
