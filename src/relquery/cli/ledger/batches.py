"""`relquery batches`: the batches that were submitted with a ledger, and how far they are."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from relquery.cli.terminal.show import errors_console
from relquery.errors import ConfigError


def batches(
    path: Annotated[Path, typer.Argument(metavar="LEDGER", help="The file given to --ledger.")],
    cancel: Annotated[
        bool,
        typer.Option(
            "--cancel", help="End those that run. What is answered by then is kept, and billed."
        ),
    ] = False,
    forget: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Forget a batch, so that its requests are submitted again, and paid again.",
        ),
    ] = None,
    base_url: Annotated[
        str | None, typer.Option(help="Address of the server, if it is not the provider's own.")
    ] = None,
) -> None:
    """Show the batches of a ledger, cancel them, or forget one that the provider has lost.

    [bold]Example[/bold]

    relquery batches run.db

    relquery batches run.db --cancel
    """
    # Imported here: the providers' packages take half a second.
    from relquery.backends.provider.batches.manage import forget_batch, shown_batches

    if not path.is_file():
        raise ConfigError(f"The ledger {path} does not exist. Give the file given to --ledger.")
    if forget is not None:
        count = forget_batch(path, forget)
        typer.echo(f"The batch {forget} is forgotten. It had {count:,} requests.")
        return
    found = shown_batches(path, base_url, cancel=cancel)
    if not found:
        errors_console().print(f"{path} has no batches.", markup=False, highlight=False)
        return
    table = Table(box=None, header_style="bold")
    for name in ("begun", "model", "requests", "done", "state", "id"):
        table.add_column(name, justify="right" if name in ("requests", "done") else "left")
    for each in found:
        begun = datetime.fromtimestamp(each.begun).strftime("%Y-%m-%d %H:%M")
        done = "" if each.done is None else f"{each.done:,}"
        table.add_row(begun, each.model, f"{each.size:,}", done, each.state, each.remote or "")
    Console().print(table)
