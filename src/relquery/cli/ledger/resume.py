"""`relquery resume`: goes on with the last run of a ledger that did not come to its end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from relquery.cli.commands import command as command_of
from relquery.cli.sql.noted import arguments, is_given
from relquery.cli.terminal.show import say
from relquery.errors import ConfigError
from relquery.ledger.records.reading import Filter, Group, opened
from relquery.ledger.records.runs import UNFINISHED, Run, Stamp, State

_FIXED = (
    "query",
    "table",
    "param",
    "model",
    "dtype",
    "quantize",
    "kv_cache_dtype",
    "database",
    "temperature",
    "max_tokens",
    "seed",
    "ledger",
)
"""What decides which questions are asked."""


def resume(
    ctx: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="LEDGER", help="The file given to --ledger.")],
) -> None:
    """Run the last unfinished `relquery sql --ledger LEDGER` again. What is known is not asked.

    Other options of `relquery sql` may follow, and win over those of that run.

    [bold]Example[/bold]

    relquery resume run.db

    relquery resume run.db --output answers.parquet
    """
    with opened(path) as records:
        runs, groups = records.runs(), records.groups(Filter())
    if not runs:
        raise ConfigError(
            f"{path} has no runs: `relquery sql --ledger` notes them. Give the whole command once "
            "more; answers that are known are not asked again."
        )
    run = next((run for run in reversed(runs) if run.state in (*UNFINISHED, State.RUNNING)), None)
    if run is None:
        say(f"Nothing to resume: all runs in {path} are complete.")
        return
    if run.state is State.RUNNING:
        raise ConfigError(f"Run {run.number} in {path} is still running (process {run.process}).")
    _check_files(run)
    command = command_of("sql")
    options = dict(run.options)
    for name in _given(ctx, command):
        options.pop(name, None)
    given = [run.query, "--ledger", str(path), *arguments(command, options), *ctx.args]
    how = "waits for a batch" if run.state is State.PENDING else f"was {run.state.value}"
    say(f"Resuming run {run.number}, which {how}.")
    with command.make_context("sql", given, parent=ctx.parent) as inner:
        if inner.params["budget"] is not None:
            of_query = {one.number for one in runs if one.query == run.query}
            _say_spent(inner.params["budget"], [one for one in groups if one.run in of_query])
        command.invoke(inner)


def _given(ctx: typer.Context, command: Any) -> list[str]:
    """Names of the options that were added. Raises ConfigError for one that changes answers."""
    with command.make_context("sql", list(ctx.args), parent=ctx.parent) as added:
        names = [name for name in added.params if is_given(added, name)]
    for name in names:
        if name in _FIXED:
            shown = "A query" if name == "query" else f"--{name.replace('_', '-')}"
            raise ConfigError(
                f"{shown} cannot be given to `relquery resume`: it would ask other questions. Use "
                "`relquery sql` with the same --ledger."
            )
    return names


def _check_files(run: Run) -> None:
    """Raises ConfigError for a table whose file is gone; says so if one has changed."""
    for path, before in run.files.items():
        now = Stamp.of(path)
        if now is None:
            raise ConfigError(
                f"Run {run.number} read {path}, which does not exist any more. Put it back, or use "
                "`relquery sql` with other tables and the same --ledger."
            )
        if now != before:
            say(f"Warning: {path} has changed since run {run.number}; changed rows are asked.")


def _say_spent(budget: str, groups: Sequence[Group]) -> None:
    """Say that a budget begins anew, and what earlier runs spent, as far as that is known."""
    # Imported here: other commands do without the providers' modules.
    from relquery.backends.provider.amounts import Amount, shown

    amount = Amount.of(budget)
    if amount.per is not None:  # it goes on, and says itself what is spent
        return
    match amount.unit:
        case "USD":
            spent = sum(one.usd or 0.0 for one in groups)
        case "tokens":
            spent = sum(one.prompt_tokens + one.output_tokens for one in groups)
        case "calls":
            spent = sum(one.attempts or 0 for one in groups)
    if spent:
        used = shown(spent, amount.unit)
        were = "was" if used.startswith("1 ") else "were"
        say(f"{used} {were} spent by earlier runs; this run may spend up to {amount} more.")
