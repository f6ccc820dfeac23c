"""`relquery sql`: one query over tables in files, or a shell for many."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import typer

from relquery.cli.command import (
    ERROR,
    INTERRUPTED,
    PENDING,
    ROWS_LOST,
    argument,
    command_of,
    option,
)
from relquery.cli.interrupt import interruptible
from relquery.cli.sql.options import ConnectionOptions, read_params, read_selectivity
from relquery.cli.sql.output import (
    Format,
    QueryOutcome,
    check_overwritten,
    print_errors,
    print_outcome,
    save,
    what_is_kept,
)
from relquery.cli.sql.resume import noted
from relquery.cli.tables import check_output
from relquery.cli.terminal import progress, say, shown_warnings
from relquery.connection import Connection
from relquery.errors import (
    BudgetError,
    ConfigError,
    LateQueryError,
    PartialResultWarning,
    PendingError,
)
from relquery.progress.watch import Watch
from relquery.report import Report
from relquery.sql.parser.statements import is_explain
from relquery.sql.result import Result

_ONLY_DEMO = (
    "Note: without --model the demo model answers. It only knows the bundled tables; for your own, "
    "give --model NAME."
)
_OF_ONE_QUERY = ("param", "output", "selectivity", "explain", "preview", "html")


@dataclass(frozen=True, kw_only=True)
class Sql(ConnectionOptions):
    """Run a query whose SQL calls a model, or open a shell for several.

    [bold]Example[/bold]

    relquery sql "SELECT movietitle, AVG(LLM('Rate sentiment from 1 to 5.', reviewcontent)) AS
    score FROM movies GROUP BY ALL ORDER BY score DESC LIMIT 5" --table movies=demo:movies

    relquery sql "EXPLAIN SELECT movietitle FROM movies WHERE LLM('Positive?', reviewcontent) =
    'Yes'" --table movies=demo:movies

    relquery sql 'SELECT movietitle FROM movies WHERE LLM($ask, reviewcontent) = $is LIMIT $n'
    --table movies=demo:movies --param ask="Is it positive?" --param is=Yes --param n=5

    relquery sql --table movies=demo:movies
    """

    ctx: typer.Context
    query: str | None = argument(
        "SQL with LLM('prompt', column, ...), AI_FILTER, AI_CLASSIFY, AI_EXTRACT, AI_AGG, AI_SCORE "
        "or AI_RANK; '-' reads from stdin. Without a query, a shell opens in a terminal; elsewhere "
        "the query is read from stdin.",
        default=None,
        show_default=False,
    )
    param: list[str] | None = option(
        "The value of the parameter $NAME: a JSON value (5, 0.5, true, null, [1, 2]), or else "
        "text. Write '\"5\"' for the text 5.",
        "--param",
        "-p",
        metavar="NAME=VALUE",
    )
    form: Format = option("How rows are printed.", "--format", "-f", default=Format.TABLE)
    output: Path | None = option(
        "Write all rows to a .parquet, .csv or .json file.", "--output", "-o"
    )
    html: Path | None = option("Write a page about the run: what was reused, prompt by prompt.")
    explain: bool = option(
        "Show what the query would ask, without calling the model. With EXPLAIN (COST) before the "
        "query: what it would cost, at least, as expected and at most.",
        "--explain",
        default=False,
    )
    selectivity: list[str] | None = option(
        "With --explain: the share of rows that pass a condition on answers, e.g. 0.3, or 'filter "
        "1=0.3' for one stage. Later stages then show what is expected.",
        metavar="[NAME=]SHARE",
    )
    preview: int | None = option(
        "Run the query on so many rows, and show what it would cost for all of them.",
        metavar="ROWS",
    )
    allow_errors: bool = option(
        "Exit with 0 even if some rows have no value.", "--allow-errors", default=False
    )
    history: bool = option("Whether the shell keeps what is typed for later ones.", default=True)

    def __call__(self) -> None:
        """Run it."""
        if self.query is None and _is_typed():
            self._open_shell()
            return
        text = _text(self.query)
        explains = self.explain or is_explain(text)
        self._check(explains=explains)
        params = read_params(self.param or ())
        shares = read_selectivity(self.selectivity or (), explains=explains)
        self._warn_of_demo()
        runs = not explains and self.preview is None
        with (
            self.connect(self.backend()) as connection,
            noted(connection.ledger, self.ctx, text, self.tables, runs=runs) as has_come,
        ):
            with self._running(connection) as watch:
                if explains:
                    told = connection.explain(text, params, selectivity=shares, **self.sampling)
                    outcome = QueryOutcome(Result(told.arrow(), (), Report()), told)
                else:
                    outcome = self._asked(connection, text, params, watch)
            has_come(outcome.result)
        save(outcome.result, self.output, self.html)
        print_outcome(outcome, self.form)
        print_errors(outcome.result)
        if outcome.result.errors and not self.allow_errors:
            raise typer.Exit(ROWS_LOST)

    @property
    def names_models(self) -> bool:
        """Whether calls of the query, or those that a shell may run, name models."""
        return self.query is None or re.search(r"(?i)\bmodel\b|ai_complete", self.query) is not None

    def _asked(self, con: Connection, text: str, params: Any, watch: Watch) -> QueryOutcome:
        if self.preview is None:
            records = self.html is not None
            return QueryOutcome(
                con.sql(text, params, progress=watch, record=records, **self.sampling)
            )
        seen = con.preview(text, params, rows=self.preview, progress=watch, **self.sampling)
        return QueryOutcome(seen.result, preview=seen)

    @contextmanager
    def _running(self, connection: Connection) -> Iterator[Watch]:
        """A block in which the query runs, with its progress shown. Where it stops, the command
        ends, and says what is kept."""
        ledger = connection.ledger
        with (
            shown_warnings(PartialResultWarning),
            progress(waiting=connection.waiting) as advance,
        ):
            try:
                with interruptible():
                    yield advance
            except KeyboardInterrupt:
                say(f"Interrupted. {what_is_kept(ledger)}")
                raise typer.Exit(INTERRUPTED) from None
            except PendingError as error:
                say(f"{error} The command for it: relquery resume {self.ledger}")
                raise typer.Exit(PENDING) from None
            except BudgetError as error:
                go_on = f"to go on: relquery resume {self.ledger} --budget AMOUNT"
                _end(f"{error} {what_is_kept(ledger, go_on)}")
            except LateQueryError as error:
                kept = what_is_kept(ledger)
                _end(str(error) if self.ledger is not None else f"{error.__cause__} {kept}")

    def _check(self, *, explains: bool) -> None:
        """Raises ConfigError for options that exclude each other, and for files that cannot be
        written."""
        if explains and self.preview is not None:
            raise ConfigError("--preview runs a query and --explain does not. Give one of them.")
        if not explains and self.preview is None:
            if self.html is not None:
                check_output(self.html, None, "--html")
            if self.output is not None:
                check_overwritten(self.output, self.tables)
            return
        what = "explanation" if explains else "preview"
        if self.html is not None:
            raise ConfigError(f"--html is a page about a whole run, not about the {what}.")
        if self.output is not None:
            raise ConfigError(
                f"--output {self.output} would be overwritten with the {what}. Remove --output, or "
                f"print the {what} with --format csv or --format json."
            )

    def _warn_of_demo(self) -> None:
        """A word of warning if the demo model answers about other tables than its own."""
        if self.model is None and any("demo:" not in table for table in self.table or ()):
            say(_ONLY_DEMO)

    def _open_shell(self) -> None:
        """Raises ConfigError for an option that is about one query."""
        for name in _OF_ONE_QUERY:
            if getattr(self, name):
                raise ConfigError(
                    f"--{name} is for one query. Give the query too, or leave --{name} out."
                )
        self._warn_of_demo()
        from relquery.cli.shell.start import open_shell  # takes a tenth of a second to import

        open_shell(self, self.form, keep_history=self.history)


sql = command_of(Sql)


def _is_typed() -> bool:
    """Whether a person types on standard input."""
    return sys.stdin is not None and sys.stdin.isatty()


def _text(query: str | None) -> str:
    """The SQL of the argument, or of standard input. Raises ConfigError for the name of a file."""
    if query is None or query == "-":
        return sys.stdin.read()
    if " " not in query and Path(query).is_file():
        if Path(query).suffix.lower() == ".sql":
            raise ConfigError(f"{query} is a file. Write: relquery sql - < {query}")
        raise ConfigError(
            f'{query} is a file, not a query. Write: relquery sql "SELECT ..." --table {query}'
        )
    return query


def _end(said: str) -> NoReturn:
    say(f"Error: {said}", "red")
    raise typer.Exit(ERROR) from None
