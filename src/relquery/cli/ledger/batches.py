"""`relquery batches`: the batches that were submitted with a ledger, and how far they are."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.cells import cell_len
from rich.console import Console, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from relquery.cli.terminal.records import in_lines
from relquery.cli.terminal.show import say
from relquery.errors import ConfigError
from relquery.sql.render import printable

if TYPE_CHECKING:
    from relquery.backends.provider.batches.backend import Shown

_PADDING = 2
"""Columns around a cell of a table."""


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
    from relquery.backends.provider.batches.backend import forget_batch, shown_batches

    if not path.is_file():
        raise ConfigError(f"The ledger {path} does not exist. Give the file given to --ledger.")
    if forget is not None:
        count = forget_batch(path, forget)
        typer.echo(f"The batch {forget} is forgotten. It had {count:,} requests.")
        return
    found = shown_batches(path, base_url, cancel=cancel)
    if not found:
        say(f"{path} has no batches.")
        return
    console = Console()
    console.print(_table(str(path), found, console.width))
    for server in dict.fromkeys(each.not_asked for each in found if each.not_asked):
        say(f"{server} was not asked. Give its address: relquery batches {path} --base-url URL")
    if cancel:
        count = sum(each.is_cancelled for each in found)
        say("1 batch was cancelled." if count == 1 else f"{count:,} batches were cancelled.")


def _table(path: str, found: Sequence[Shown], width: int) -> RenderableType:
    """A row for each; where the terminal is too narrow for all in full, a line for each value."""
    columns = {
        "begun": [datetime.fromtimestamp(one.begun).strftime("%Y-%m-%d %H:%M") for one in found],
        "model": [printable(one.model) for one in found],
        "requests": [f"{one.size:,}" for one in found],
        "done": ["" if one.done is None else f"{one.done:,}" for one in found],
        "state": [one.state for one in found],
        "id": [printable(one.remote or "") for one in found],
    }
    widths = [max(map(cell_len, (name, *cells))) + _PADDING for name, cells in columns.items()]
    if sum(widths) > width:
        return in_lines(columns, printable(path))
    table = Table(box=None, header_style="bold")
    for name in columns:
        justify: JustifyMethod = "right" if name in ("requests", "done") else "left"
        table.add_column(name, justify=justify)
    for row in zip(*columns.values(), strict=True):
        table.add_row(*map(Text, row))
    return table
