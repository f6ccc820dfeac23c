"""The commands by name. One is imported when it is run: all of them together take a second."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import typer
from typer.main import get_command, get_group

COMMANDS = {
    "sql": ("sql.command", "Run a query whose SQL calls a model, or open a shell for several."),
    "ledger": (
        "ledger.command",
        "Show the runs and models of a ledger: answers, failures, tokens, USD and times.",
    ),
    "doctor": (
        "ledger.doctor",
        "Say which tokens a provider's cache was to serve and did not, what that cost, and why.",
    ),
    "batches": (
        "ledger.batches",
        "Show the batches of a ledger, cancel them, or forget one that the provider has lost.",
    ),
    "resume": (
        "ledger.resume",
        "Run the last unfinished `relquery sql --ledger LEDGER` again. What is known is not asked.",
    ),
    "reorder": (
        "reorder.command",
        "Order a table so that prompts share prefixes, and show what each method achieves.",
    ),
    "demo": (
        "demo",
        "Ask one question about 1,000 rows in three ways, and compare times, tokens and answers.",
    ),
    "trace": (
        "traces.trace",
        "Write a trace: which relQueries arrive when, what each row asks, how long answers are.",
    ),
    "simulate": (
        "traces.simulate",
        "Predict the latencies of relQueries under each policy, without a model.",
    ),
    "replay": (
        "traces.replay",
        "Measure the latencies of relQueries on an OpenAI-compatible chat-completions server.",
    ),
    "calibrate": (
        "calibrate",
        "Measure batches of many sizes and fit the linear cost model that predicts their seconds.",
    ),
    "models": ("models", "List models that run here, how fast they would be, and fetch them."),
    "prices": (
        "prices",
        "List the known prices of providers' models, with the date and page they were read from.",
    ),
    "serve": (
        "serve.command",
        "Serve a model over HTTP: the APIs of OpenAI and Anthropic, SQL, trees and prompt markup.",
    ),
    "span": (
        "span.command",
        "Span queries: generations that read other generations and reuse their states.",
    ),
    "prompt": ("prompt", "Prompt markup: schemas of modules, and prompts that import them."),
    "mcp": (
        "serve.mcp",
        "Tools of a server for agents, in the Model Context Protocol on standard input and output.",
    ),
    "keys": ("serve.keys", "Keys of those who may ask a server."),
}
"""The module of each command, in which it has the command's name, and its line of help."""

_SETTINGS = {"resume": {"allow_extra_args": True, "ignore_unknown_options": True}}


@cache
def command(name: str) -> Any:
    """A command by its name, ready to run."""
    module, _ = COMMANDS[name]
    found = getattr(import_module(f"relquery.cli.{module}"), name)
    if isinstance(found, typer.Typer):
        made: Any = get_group(found)
    else:
        alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
        alone.command(name, context_settings=_SETTINGS.get(name))(found)
        made = get_command(alone)
    made.name = name
    return made
