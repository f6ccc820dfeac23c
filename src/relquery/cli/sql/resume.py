"""Notes a run in the ledger's file, without secrets; `relquery resume` goes on with it."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from relquery.backends.embedders import AUTO, default_embedder
from relquery.cli.app import command as command_of
from relquery.cli.command import PENDING
from relquery.cli.tables import find_table
from relquery.cli.terminal import say
from relquery.errors import ConfigError
from relquery.ledger import Ledger
from relquery.ledger.records import Group, RecordFilter, opened
from relquery.ledger.runs import UNFINISHED, FileStamp, Run, RunState, begin_run, end_run
from relquery.redaction import without_credentials
from relquery.sql.result import Result

Options = dict[str, list[str]]

# Not max_tokens and the like: a run without them would ask other questions.
_SECRET = re.compile(r"(?:^|_)(?:(?:key|secret|password|passwd|header)s?|auth|token)$")
_NO_OPTIONS = ("query", "ledger")
_PLACES = ("model", "database", "embedder")
"""Options that may be the path of a file or folder."""


@contextmanager
def noted(
    ledger: Ledger | None, ctx: typer.Context, query: str, tables: Mapping[str, Path], *, runs: bool
) -> Iterator[Callable[[Result], None]]:
    """A block in which statements run; it is given a function to be told of their result.

    runs: whether they do run, rather than being explained. Without a ledger's file, nothing is
    noted, nor if it cannot be written.
    """
    states = [RunState.STOPPED]

    def came(result: Result) -> None:
        states.append(RunState.INCOMPLETE if result.errors else RunState.COMPLETE)

    if ledger is None or ledger.path is None or not runs:
        yield came
        return
    with suppress(sqlite3.Error):
        begin_run(ledger, query, options_of(ctx), _stamps(ctx, tables))
    try:
        yield came
    except typer.Exit as ended:
        if ended.exit_code == PENDING:
            states.append(RunState.PENDING)
        raise
    finally:
        with suppress(sqlite3.Error):
            end_run(ledger, states[-1])


def options_of(ctx: typer.Context) -> Options:
    """What was given on the command line, by the names of parameters, without secrets.

    Paths are absolute, so that the command runs in any folder. What compares texts by default is
    named, so that it does so again when another encoder has been installed.
    """
    options = {
        name: [noted_text(name, item) for item in _values(value)]
        for name, value in ctx.params.items()
        if is_given(ctx, name) and name not in _NO_OPTIONS and not _SECRET.search(name)
    }
    is_default = ctx.params.get("embedder") == AUTO
    return options | ({"embedder": [default_embedder()]} if is_default else {})


def is_given(ctx: typer.Context, name: str) -> bool:
    """Whether a parameter stands on the command line."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def arguments(command: Any, options: Mapping[str, Sequence[str]]) -> list[str]:
    """Options as they are typed. command: whose they are; others are left out."""
    words = []
    for parameter in command.params:
        for value in options.get(parameter.name, ()):
            if not parameter.is_flag:
                words += [parameter.opts[0], value]
            else:
                names = parameter.opts if value == str(True) else parameter.secondary_opts
                words += names[:1]
    return words


def _values(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]


def noted_text(name: str, value: Any) -> str:
    """A value of an option, without secrets."""
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, Path):
        return str(value.absolute())
    text = str(value)
    if name == "table":
        table, path = find_table(text)
        return text if "demo:" in text else f"{table}={path.absolute()}"
    if name in _PLACES and not Path(text).is_absolute() and Path(text).exists():
        return str(Path(text).absolute())
    return without_credentials(text) if "://" in text else text


def _stamps(ctx: typer.Context, tables: Mapping[str, Path]) -> dict[str, FileStamp]:
    """How the files of tables are now."""
    paths = [str(path.absolute()) for path in tables.values()]
    if Path(database := ctx.params["database"]).is_file():
        paths.append(str(Path(database).absolute()))
    stamps = {path: FileStamp.of(path) for path in paths}
    return {path: stamp for path, stamp in stamps.items() if stamp is not None}


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
        runs, groups = records.runs(), records.groups(RecordFilter())
    if not runs:
        raise ConfigError(
            f"{path} has no runs: `relquery sql --ledger` notes them. Give the whole command once "
            "more; answers that are known are not asked again."
        )
    run = next(
        (run for run in reversed(runs) if run.state in (*UNFINISHED, RunState.RUNNING)), None
    )
    if run is None:
        say(f"Nothing to resume: all runs in {path} are complete.")
        return
    if run.state is RunState.RUNNING:
        raise ConfigError(f"Run {run.number} in {path} is still running (process {run.process}).")
    _check_files(run)
    command = command_of("sql")
    options = dict(run.options)
    for name in _given(ctx, command):
        options.pop(name, None)
    given = [run.query, "--ledger", str(path), *arguments(command, options), *ctx.args]
    how = "waits for a batch" if run.state is RunState.PENDING else f"was {run.state.value}"
    say(f"Resuming run {run.number}, which {how}.")
    with command.make_context("sql", given, parent=ctx.parent) as inner:
        if inner.params["budget"] is not None:
            of_query = {earlier.number for earlier in runs if earlier.query == run.query}
            _say_spent(inner.params["budget"], [group for group in groups if group.run in of_query])
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
        now = FileStamp.of(path)
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
    from relquery.backends.provider.spending import Amount, shown

    amount = Amount.of(budget)
    if amount.per is not None:  # it goes on, and says itself what is spent
        return
    match amount.unit:
        case "USD":
            spent = sum(group.usd or 0.0 for group in groups)
        case "tokens":
            spent = sum(group.prompt_tokens + group.output_tokens for group in groups)
        case "calls":
            spent = sum(group.attempts or 0 for group in groups)
    if spent:
        used = shown(spent, amount.unit)
        were = "was" if used.startswith("1 ") else "were"
        say(f"{used} {were} spent by earlier runs; this run may spend up to {amount} more.")
