"""`relquery ledger`: what is in a ledger; exports and prunes it."""

from __future__ import annotations

import time
from enum import Enum
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer
from rich.console import Console

from relquery.cli.ledger.times import read_time
from relquery.cli.ledger.view import as_json, as_rows, as_table
from relquery.cli.sql.formats import WRITERS
from relquery.cli.terminal import tables
from relquery.cli.terminal.show import errors_console, say, to_json
from relquery.errors import ConfigError
from relquery.ledger.records.pruning import prune as prune_ledger
from relquery.ledger.records.reading import Filter, Group, Records, opened
from relquery.report import Report
from relquery.sql.result import Result


class Shown(Enum):
    """How it is printed."""

    TABLE = "table"
    JSON = "json"


def ledger(
    path: Annotated[
        Path, typer.Argument(metavar="LEDGER", help="A file, or a folder as Spark uses it.")
    ],
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="Only this model, e.g. openai:gpt-5.4-mini or 'demo*', at any server.",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(help="Only from this time on: 2026-11-20, 2026-11-20T18:00 (UTC), or 7d ago."),
    ] = None,
    before: Annotated[
        str | None,
        typer.Option(help="Only what came before this time, or has none."),
    ] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only failures of calls that have no answer.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write them to a .parquet, .csv or .json file."),
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete them. Asks first; needs one of the filters.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without asking.")] = False,
    form: Annotated[
        Shown, typer.Option("--format", "-f", help="How the overview is printed.")
    ] = Shown.TABLE,
) -> None:
    """Show the runs and models of a ledger: answers, failures, tokens, USD and times.

    [bold]Example[/bold]

    relquery ledger run.db

    relquery ledger run.db --failed --output failed.csv

    relquery ledger run.db --before 90d --prune
    """
    now = time.time()
    since_at, before_at = (
        read_time(name, text, now) for name, text in (("--since", since), ("--before", before))
    )
    wanted = Filter(model, since_at, before_at, failed)
    if output is not None:
        check_output(output, path)
    if prune:
        _check_prune(path, wanted)
    with opened(path) as records:
        records.check_model(wanted)
        groups = records.groups(wanted)
        if not prune or output is not None:
            _print(path, records, groups, wanted, form)
        if output is not None:
            export(as_rows(records.entries(wanted)), output)
    if prune:
        _prune(path, wanted, groups, asks=not yes)


def _print(path: Path, records: Records, groups: list[Group], wanted: Filter, form: Shown) -> None:
    named = {group.run for group in groups}
    runs = [run for run in records.runs() if wanted.is_all or run.number in named]
    if form is Shown.JSON:
        typer.echo(to_json(as_json(str(path), groups, runs)))
    else:
        console = Console()
        console.print(as_table(str(path), groups, runs, console.width))


def export(rows: pa.Table, output: Path) -> None:
    """Write rows to a file, and say so."""
    WRITERS[output.suffix.lower()](Result(rows, (), Report()), output)
    count = f"{len(rows):,} {'row' if len(rows) == 1 else 'rows'}"
    say(f"Wrote {count} to {output}.")


def _prune(path: Path, wanted: Filter, groups: list[Group], *, asks: bool) -> None:
    answers, failures = (
        sum(one.answers for one in groups),
        sum(one.failed if wanted.failed else one.failures for one in groups),
    )
    if not answers and not failures:
        errors_console().print("Nothing to delete.")
        return
    what = f"{answers:,} answers and {failures:,} failures"
    if asks:
        typer.confirm(f"Delete {what} from {path}? Answers are asked again when needed", abort=True)
    done = prune_ledger(path, wanted)
    said = f"Deleted {done.answers:,} answers and {done.failures:,} failures from {path}."
    say(said)


def check_output(output: Path, path: Path) -> None:
    """Whether rows can be written there. path: of the ledger. Raises ConfigError."""
    if output.exists() and path.exists() and output.samefile(path):
        raise ConfigError(f"--output {output} would overwrite the ledger. Give another file name.")
    tables.check_output(output, list(WRITERS), any_case=True)


def _check_prune(path: Path, wanted: Filter) -> None:
    if wanted.is_all:
        raise ConfigError(
            "--prune without a filter would delete everything. Give --model, --since, --before or "
            f"--failed, or delete {path}."
        )
    if path.is_dir():
        raise ConfigError(
            f"{path} is a folder; its files have neither models nor times to prune by. Delete "
            "the files that are no longer wanted."
        )
