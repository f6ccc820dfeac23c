"""`relquery doctor`: which expected hits in a provider's cache were missed, and why."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from relquery.cli.installation import check_model, installation
from relquery.cli.ledger.command import Shown, check_output, export
from relquery.cli.ledger.findings import as_json, as_rows, as_view
from relquery.cli.ledger.times import read_time
from relquery.cli.terminal.show import to_json
from relquery.ledger.caching.summary import examine
from relquery.ledger.records.reading import Filter


def doctor(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="[LEDGER]", help="The file given to --ledger."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="Of a ledger only this model; without one, a model of this machine to check.",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(help="Only from this time on: 2026-11-20, 2026-11-20T18:00 (UTC), or 7d ago."),
    ] = None,
    before: Annotated[
        str | None, typer.Option(help="Only what came before this time, or has none.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Write what is found of each answer to .parquet, .csv or .json."
        ),
    ] = None,
    form: Annotated[
        Shown, typer.Option("--format", "-f", help="How the findings are printed.")
    ] = Shown.TABLE,
) -> None:
    """Say which tokens a provider's cache was to serve and did not, what that cost, and why.

    Without a ledger, say what is installed here, and what the processor can do; with a model, also
    how far its logits are from those of transformers, where that is installed.

    [bold]Example[/bold]

    relquery doctor

    relquery doctor -m Qwen/Qwen3-0.6B

    relquery doctor run.db

    relquery doctor run.db --since 7d --output misses.csv
    """
    if path is None:
        for name, found in installation().items():
            typer.echo(f"{name:<13} {found}")
        if model is not None:
            check_model(model)
        return
    now = time.time()
    since_at, before_at = (
        read_time(name, text, now) for name, text in (("--since", since), ("--before", before))
    )
    if output is not None:
        check_output(output, path)
    wanted = Filter(model, since_at, before_at)
    findings, groups = examine(path, wanted)
    if form is Shown.JSON:
        typer.echo(to_json(as_json(str(path), groups)))
    else:
        console = Console()
        console.print(as_view(str(path), groups, console.width))
    if output is not None:
        export(as_rows(findings), output)
