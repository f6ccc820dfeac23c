"""`relquery`: its commands, and how errors become messages and exit codes."""

from __future__ import annotations

import sys
from importlib.metadata import version

import typer

from relquery.cli.calibrate import calibrate
from relquery.cli.demo import demo
from relquery.cli.ledger.batches import batches
from relquery.cli.ledger.command import ledger
from relquery.cli.ledger.doctor import doctor
from relquery.cli.ledger.resume import resume
from relquery.cli.prices import prices
from relquery.cli.prompt import prompt
from relquery.cli.reorder.command import reorder
from relquery.cli.serve.command import serve
from relquery.cli.serve.keys import keys
from relquery.cli.span.command import span
from relquery.cli.sql.command import sql
from relquery.cli.terminal.exits import ERROR
from relquery.cli.terminal.show import say
from relquery.cli.traces.replay import replay
from relquery.cli.traces.simulate import simulate
from relquery.cli.traces.trace import trace
from relquery.errors import RelqueryError

app = typer.Typer(
    help="LLM queries over relational data. Exit codes: 0 success, 1 an error, such as a wrong "
    "query or a budget of 0, 2 an option or argument that is unknown, missing or of the wrong "
    "type, 3 some rows have no value, 4 answers wait for a batch, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.command()(sql)
app.command()(ledger)
app.command()(doctor)
app.command()(batches)
app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(resume)
app.command()(reorder)
app.command()(demo)
app.command()(trace)
app.command()(simulate)
app.command()(replay)
app.command()(calibrate)
app.command()(prices)
app.command()(serve)
app.add_typer(span, name="span")
app.add_typer(prompt, name="prompt")
app.add_typer(keys, name="keys")


def _print_version(wanted: bool) -> None:
    if wanted:
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
        say(f"Error: {error}", "red")
        sys.exit(ERROR)
