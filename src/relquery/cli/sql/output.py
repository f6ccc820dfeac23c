"""Prints and writes what `relquery sql` has come to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from relquery.cli.sql.formats import SHOWN, WRITERS, Format, as_markdown, rows_of
from relquery.cli.sql.wanted import Outcome
from relquery.cli.terminal.show import errors_console, result_table, say, to_json
from relquery.cli.terminal.tables import check_output
from relquery.errors import ConfigError
from relquery.sql.exchange.arrow import distinct_names
from relquery.sql.exchange.python import for_csv
from relquery.sql.render import view_of
from relquery.sql.result import Result


def writer(path: Path, tables: Mapping[str, Path]) -> Any:
    """A function that writes a result to `path`; checked before the query has cost anything."""
    for name, source in tables.items():
        if path.exists() and source.exists() and path.samefile(source):
            raise ConfigError(
                f"--output {path} would overwrite the table '{name}'. Give another file name."
            )
    check_output(path, list(WRITERS), any_case=True)

    def write(result: Result) -> None:
        WRITERS[path.suffix.lower()](result, path)
        rows = f"{len(result):,} {'row' if len(result) == 1 else 'rows'}"
        say(f"Wrote {rows} to {path}.")

    return write


def save(result: Result, write: Callable[[Result], None] | None, html: Path | None) -> None:
    """Write what the options ask for, and say so on standard error."""
    if write is not None:
        write(result)
    if html is not None:
        result.write_html(html)
        say(f"Wrote the page to {html}.")


def print_outcome(outcome: Outcome, form: Format) -> None:
    """Print the rows, or what was explained or measured, on standard output."""
    result = outcome.result
    if form is Format.TABLE and outcome.explanation is not None:
        from relquery.cli.sql.explained import shown

        console = Console()
        width = console.width if outcome.explanation.tells_costs else None
        console.print(shown(outcome.explanation, width))
    elif form is Format.TABLE and view_of(result.table, "text") is not None:
        from relquery.cli.sql.explained import drawn

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
        from relquery.cli.sql.explained import whole

        console = Console() if form is Format.TABLE else errors_console()
        console.print(whole(outcome.preview))
