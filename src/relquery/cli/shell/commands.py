"""The dot-commands of the shell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from rich.table import Table
from rich.text import Text

from relquery.cli.shell.completion import entries
from relquery.cli.shell.session import Session
from relquery.cli.sql.output import Format
from relquery.cli.tables import find_table
from relquery.cli.terminal import to_json
from relquery.errors import ConfigError, unknown
from relquery.report import Report
from relquery.sql.result import Result

Run = Callable[[Session, str], None]
Words = Callable[[Session], Iterable[str]]


@dataclass(frozen=True, slots=True)
class DotCommand:
    """A dot-command. usage: its argument, if any. words: what Tab completes; None for files."""

    name: str
    usage: str
    help: str
    run: Run
    words: Words | None


COMMANDS: dict[str, DotCommand] = {}
"""By name, in the order of `.help`."""


def _command(
    usage: str, help: str, words: Words | None = lambda session: ()
) -> Callable[[Run], Run]:
    """Makes a function a dot-command, named after it."""

    def add(run: Run) -> Run:
        name = run.__name__.replace("_", ".")
        COMMANDS[name] = DotCommand(name, usage, help, run, words)
        return run

    return add


def _switch(session: Session) -> Iterable[str]:
    return ("on", "off")


def _models(session: Session) -> Iterable[str]:
    return ("demo", "openai:", "random:layers=1", "simulated:a100-opt13b")


def run_command(session: Session, line: str) -> None:
    """Run a line such as `.mode csv`. Raises RelqueryError and OSError."""
    name, *rest = line.rstrip("; \t").split(maxsplit=1)
    command = COMMANDS.get(name.lower())
    if command is None:
        raise ConfigError(unknown("command", name, COMMANDS))
    argument = _without_quotes(rest[0]) if rest else ""
    if argument and not command.usage:
        raise ConfigError(f"{name} takes no argument. Write {name}.")
    command.run(session, argument)


def _without_quotes(text: str) -> str:
    text = text.strip()
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if is_quoted else text


@_command("", "Show these commands.")
def _help(session: Session, argument: str) -> None:
    view = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    view.add_column(overflow="fold", max_width=24)
    view.add_column(overflow="fold")
    for command in COMMANDS.values():
        view.add_row(Text(f"{command.name} {command.usage}".rstrip()), Text(command.help))
    session.screen.draw(view)
    session.screen.say(
        "Statements end with ;. Ctrl-C stops a statement, Ctrl-R searches the history."
    )


@_command("", "List the tables and their columns.")
def _tables(session: Session, argument: str) -> None:
    tables = session.connection.tables()
    if not tables:
        session.screen.say("No tables. .register NAME=FILE reads a file as a table.")
        return
    names = sorted(tables)
    columns = [", ".join(tables[name]) for name in names]
    _show(session, {"table": names, "columns": columns})


@_command("NAME=FILE", "Read a CSV, Parquet, JSON or DuckDB file as a table.", None)
def _register(session: Session, argument: str) -> None:
    if not argument:
        raise ConfigError("Give a file: .register NAME=FILE, e.g. .register movies=movies.csv.")
    name, path = find_table(argument)
    session.register(name, path.expanduser())
    columns = session.connection.tables().get(name, ())
    session.screen.say(f"{name}: {', '.join(columns)}" if columns else f"{name} is readable.")


@_command("FILE", "Open a DuckDB file instead of the present database.", None)
def _open(session: Session, argument: str) -> None:
    if not argument:
        raise ConfigError("Give a DuckDB file: .open FILE. .open :memory: opens an empty database.")
    session.change_database(Path(argument).expanduser())
    session.last = None


@_command("[NAME]", "Show or change the model that answers.", _models)
def _model(session: Session, argument: str) -> None:
    if argument:
        session.change_model(argument)
    session.screen.say(f"model: {session.model}")


@_command(
    "[on|off|CALLS]",
    "Show what a statement would ask, and ask before it is sent; with a number, only for more "
    "calls than that.",
    _switch,
)
def _explain(session: Session, argument: str) -> None:
    if argument.isdecimal() and argument.isascii():
        session.limit = int(argument)
    elif argument:
        session.limit = 0 if _is_on(".explain", argument, "a number of calls") else None
    session.screen.say(f"explain: {_limit(session)}")


def _limit(session: Session) -> str:
    if session.limit is None:
        return "off"
    return "on" if session.limit == 0 else f"above {session.limit:,} calls"


@_command("[on|off]", "Show the seconds that each statement takes.", _switch)
def _timer(session: Session, argument: str) -> None:
    if argument:
        session.is_timed = _is_on(".timer", argument)
    session.screen.say(f"timer: {_on(session.is_timed)}")


def _on(is_on: bool) -> str:
    return "on" if is_on else "off"


def _is_on(name: str, argument: str, other: str = "") -> bool:
    if argument.lower() not in ("on", "off"):
        more = f" or {other}" if other else ""
        raise ConfigError(f"{name} {argument}: expected on, off{more}.")
    return argument.lower() == "on"


@_command(
    "[FORM]",
    "Show results as table, csv, json or markdown.",
    lambda session: [form.value for form in Format],
)
def _mode(session: Session, argument: str) -> None:
    forms = {form.value: form for form in Format}
    if argument:
        if argument.lower() not in forms:
            raise ConfigError(unknown("mode", argument, forms))
        session.screen.form = forms[argument.lower()]
    session.screen.say(f"mode: {session.screen.form.value}")


@_command("[N]", "Show up to N rows of a table.")
def _rows(session: Session, argument: str) -> None:
    if argument:
        if not (argument.isdecimal() and argument.isascii() and int(argument)):
            raise ConfigError(f".rows {argument}: expected a whole number of at least 1.")
        session.screen.rows = int(argument)
    session.screen.say(f"rows: {session.screen.rows:,}")


@_command("FILE", "Run the statements and commands of a file.", None)
def _read(session: Session, argument: str) -> None:
    if not argument:
        raise ConfigError("Give a file with statements: .read FILE.")
    path = Path(argument).expanduser()
    if path.resolve() in session.reading:
        raise ConfigError(f"{path} is already being read. A file cannot read itself.")
    try:
        statements = entries(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text ({error.reason}). Convert it.") from error
    session.reading.append(path.resolve())
    session.pending[:0] = [*statements.whole, *([statements.rest] if statements.rest else [])]


@_command("", "Show the values that are missing in the last result.")
def _errors(session: Session, argument: str) -> None:
    errors = () if session.last is None else session.last.errors
    if not errors:
        session.screen.say("No values are missing in the last result with calls.")
        return
    columns: dict[str, Sequence[object]] = {
        "stage": [error.stage for error in errors],
        "row": [error.row for error in errors],
        "error": [error.error for error in errors],
        "answer": [error.text for error in errors],
        "inputs": [to_json(dict(error.inputs)) for error in errors],
    }
    _show(session, columns)


@_command("", "Leave the shell; so does Ctrl-D.")
def _quit(session: Session, argument: str) -> None:
    session.is_over = True


def _show(session: Session, columns: Mapping[str, Sequence[object]]) -> None:
    session.screen.show(Result(pa.table(dict(columns)), (), Report()))
