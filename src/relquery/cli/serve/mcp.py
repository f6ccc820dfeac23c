"""`relquery mcp`: the tools of a server on standard input and output."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from relquery.errors import MissingExtraError


def mcp(
    url: Annotated[
        str, typer.Argument(help="The address of a server that `relquery serve` has started.")
    ] = "http://127.0.0.1:8000",
    key: Annotated[
        str | None,
        typer.Option(envvar="RELQUERY_KEY", help="A key of `relquery keys`, if it needs one."),
    ] = None,
) -> None:
    """Offer the tools of a server to an agent, in the Model Context Protocol on standard input.

    An agent that speaks HTTP needs no command: the server has the same tools at /mcp.

    [bold]Example[/bold]

      relquery mcp http://127.0.0.1:8000
    """
    try:
        from relquery.serve.mcp.tools import over_stdio
    except ImportError:
        raise MissingExtraError("relquery mcp", "mcp") from None
    asyncio.run(over_stdio(url, {} if key is None else {"Authorization": f"Bearer {key}"}))
