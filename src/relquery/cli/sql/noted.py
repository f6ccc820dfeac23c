"""Notes a run in the ledger's file: its statements, and how they were asked, without secrets."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Any

import typer

from relquery.backends.embedding.load import AUTO, default_embedder
from relquery.cli.terminal.exits import PENDING
from relquery.cli.terminal.tables import find_table
from relquery.ledger import Ledger
from relquery.ledger.records.runs import Stamp, State, begin_run, end_run
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
    states = [State.STOPPED]

    def came(result: Result) -> None:
        states.append(State.INCOMPLETE if result.errors else State.COMPLETE)

    if ledger is None or ledger.path is None or not runs:
        yield came
        return
    with suppress(sqlite3.Error):
        begin_run(ledger, query, options_of(ctx), _stamps(ctx, tables))
    try:
        yield came
    except typer.Exit as ended:
        if ended.exit_code == PENDING:
            states.append(State.PENDING)
        raise
    finally:
        with suppress(sqlite3.Error):
            end_run(ledger, states[-1])


def options_of(ctx: typer.Context) -> Options:
    """What was given on the command line, by the names of parameters, without secrets.

    Paths are absolute, so that the command runs in any folder. What compares texts by default is
    named, so that it does so again when another encoder has been installed.
    """
    found = {
        name: [noted_text(name, one) for one in _values(value)]
        for name, value in ctx.params.items()
        if is_given(ctx, name) and name not in _NO_OPTIONS and not _SECRET.search(name)
    }
    is_default = ctx.params.get("embedder") == AUTO
    return found | ({"embedder": [default_embedder()]} if is_default else {})


def is_given(ctx: typer.Context, name: str) -> bool:
    """Whether a parameter stands on the command line."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def arguments(command: Any, options: Mapping[str, Sequence[str]]) -> list[str]:
    """Options as they are typed. command: whose they are; others are left out."""
    found = []
    for parameter in command.params:
        for value in options.get(parameter.name, ()):
            if not parameter.is_flag:
                found += [parameter.opts[0], value]
            else:
                names = parameter.opts if value == str(True) else parameter.secondary_opts
                found += names[:1]
    return found


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


def _stamps(ctx: typer.Context, tables: Mapping[str, Path]) -> dict[str, Stamp]:
    """How the files of tables are now."""
    paths = [str(path.absolute()) for path in tables.values()]
    if Path(database := ctx.params["database"]).is_file():
        paths.append(str(Path(database).absolute()))
    found = {path: Stamp.of(path) for path in paths}
    return {path: stamp for path, stamp in found.items() if stamp is not None}
