"""`relquery`: its commands, and how errors become messages and exit codes."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from relquery.cli.command import ERROR
from relquery.errors import RelqueryError

COMMANDS = {
    "sql": ("sql.command", "Run a query whose SQL calls a model, or open a shell for several."),
    "ledger": (
        "ledger",
        "Show the runs and models of a ledger: answers, failures, tokens, USD and times.",
    ),
    "doctor": (
        "models",
        "Say what is installed here, and how far a model is from that of transformers.",
    ),
    "batches": (
        "ledger",
        "Show the batches of a ledger, cancel them, or forget one that the provider has lost.",
    ),
    "resume": (
        "sql.resume",
        "Run the last unfinished `relquery sql --ledger LEDGER` again. What is known is not asked.",
    ),
    "reorder": (
        "reorder",
        "Order a table so that prompts share prefixes, and show what each method achieves.",
    ),
    "demo": (
        "demo",
        "Ask one question about 1,000 rows in three ways, and compare times, tokens and answers.",
    ),
    "trace": (
        "simulate",
        "Write a trace: which relQueries arrive when, what each row asks, how long answers are.",
    ),
    "trace import": (
        "simulate",
        "Write a published trace as ours: of Azure, BurstGPT, Mooncake, or in ShareGPT's form.",
    ),
    "simulate": (
        "simulate",
        "Predict the latencies of relQueries under each policy, without a model.",
    ),
    "calibrate": (
        "simulate",
        "Measure batches of many sizes and fit the linear cost model that predicts their seconds.",
    ),
    "models": ("models", "List models that run here, how fast they would be, and fetch them."),
    "prices": (
        "prices",
        "List the known prices of providers' models, with the date and page they were read from.",
    ),
    "serve": (
        "serve",
        "Serve a model over HTTP: the APIs of OpenAI and Anthropic, SQL, span queries and markup.",
    ),
    "span": (
        "span",
        "Span queries: generations that read other generations and reuse their states.",
    ),
    "mcp": (
        "serve",
        "Offer the tools of a server to an agent, in the Model Context Protocol on standard input.",
    ),
    "keys": ("keys", "Keys of those who may ask a server."),
}
"""The module of each command, in which it has the command's name, with _ for a space, and its line
of help."""

_SETTINGS = {"resume": {"allow_extra_args": True, "ignore_unknown_options": True}}


@cache
def command(name: str) -> Any:
    """A command by its name, ready to run."""
    module, _ = COMMANDS[name]
    member = getattr(import_module(f"relquery.cli.{module}"), name.replace(" ", "_"))
    if isinstance(member, typer.Typer):
        made: Any = get_group(member)
    else:
        alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
        alone.command(name, context_settings=_SETTINGS.get(name))(member)
        made = get_command(alone)
    made.name = name
    return made


class _Commands(TyperGroup):
    """The commands: listed by their lines of help, imported when one is run."""

    def __init__(self, **options: Any) -> None:
        options["commands"] = {
            name: TyperCommand(name, help=line) for name, (_, line) in COMMANDS.items()
        }
        super().__init__(**options)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        if (both := " ".join(args[:2])) in self.commands:
            args = [both, *args[2:]]
        name, subcommand, rest = super().resolve_command(ctx, args)
        return name, subcommand and command(str(name)), rest


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


def _leave_statement(code: Any) -> None:
    """End the process at once if a statement of DuckDB still computes that was interrupted.

    All else is closed by now. Python's own end would wait for what DuckDB holds.
    """
    host = sys.modules.get("relquery.sql.host.statement_thread")
    if host is not None and host.is_any_left():
        host.leave_process(code if isinstance(code, int) else ERROR)


def run() -> None:
    """Run the command line; errors become one message and exit code 1."""
    try:
        app()
    except SystemExit as ended:
        # Ctrl-C that no command took note of: typer ends without a word.
        if isinstance(getattr(ended.__context__, "__cause__", None), KeyboardInterrupt):
            raise KeyboardInterrupt from None
        _leave_statement(ended.code)
        raise
    except (RelqueryError, OSError) as error:
        from relquery.cli.terminal import say

        say(f"Error: {error}", "red")
        sys.exit(ERROR)
