"""`relquery prompt`: schemas of prompt modules and prompts over them, checked and drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relquery.markup.draw import draw as drawn
from relquery.markup.files import read_text
from relquery.markup.imports import MarkupPrompt
from relquery.markup.schema import Schema

prompt = typer.Typer(
    help="""Prompt markup: schemas of modules, and prompts that import them.

    [bold]Example[/bold]

    relquery prompt draw travel.xml
    """,
    no_args_is_help=True,
    rich_markup_mode="rich",
)


@prompt.callback()
def _commands() -> None:
    """Keeps `draw` a command of its own: an app with one command would be that command."""


@prompt.command()
def draw(
    schema: Annotated[Path, typer.Argument(metavar="SCHEMA", help="A file with <schema>.")],
    asked: Annotated[
        Path | None, typer.Argument(metavar="[PROMPT]", help="A file with <prompt>.")
    ] = None,
) -> None:
    """Check a schema, or a prompt over it, and draw it as a tree.

    [bold]Examples[/bold]

    relquery prompt draw travel.xml

    relquery prompt draw travel.xml tokyo.xml
    """
    read = Schema.load(schema)
    shown = read if asked is None else MarkupPrompt.parse(read_text(asked), read)
    typer.echo(drawn(shown))
