"""`relquery`: how its commands are found, and how errors become messages and exit codes."""

from __future__ import annotations

import sys
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from relquery.cli.commands import COMMANDS, command
from relquery.cli.terminal.exits import ERROR
from relquery.errors import RelqueryError


class _Commands(TyperGroup):
    """The commands: listed by their lines of help, imported when one is run."""

    def __init__(self, **options: Any) -> None:
        options["commands"] = {
            name: TyperCommand(name, help=line) for name, (_, line) in COMMANDS.items()
        }
        super().__init__(**options)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, found, rest = super().resolve_command(ctx, args)
        return name, found and command(str(name)), rest


app = typer.Typer(
    cls=_Commands,
    help="LLM queries over relational data. Exit codes: 0 success, 1 an error, such as a wrong "
    "query or a budget of 0, 2 an option or argument that is unknown, missing or of the wrong "
    "type, 3 some rows have no value, 4 answers wait for a batch, 130 interrupted.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"relquery {version('relquery')}")
        raise typer.Exit


@app.callback()
def _options(
    show_version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    pass


def run() -> None:
    """Run the command line; errors become one message and exit code 1."""
    try:
        app()
    except SystemExit as ended:
        # Ctrl-C that no command took note of: typer ends without a word.
        if isinstance(getattr(ended.__context__, "__cause__", None), KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise
    except (RelqueryError, OSError) as error:
        from relquery.cli.terminal.show import say

        say(f"Error: {error}", "red")
        sys.exit(ERROR)
