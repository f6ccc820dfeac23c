"""Runs the query of `relquery sql`, and says what is kept where it stops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from relquery.cli.terminal.exits import ERROR, INTERRUPTED, PENDING
from relquery.cli.terminal.interrupt import interruptible
from relquery.cli.terminal.show import progress, say, shown_warnings
from relquery.cli.terminal.tables import check_output
from relquery.connection import Connection
from relquery.errors import (
    BudgetError,
    ConfigError,
    LateQueryError,
    PartialResultWarning,
    PendingError,
)
from relquery.ledger import Ledger
from relquery.progress.watch import Watch
from relquery.report import Report
from relquery.sql.result import Result

if TYPE_CHECKING:
    from relquery.sql.explain.explanation import SqlExplanation
    from relquery.sql.preview import Preview


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it; what does not apply is None."""

    result: Result
    explanation: SqlExplanation | None = None
    preview: Preview | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """explains: whether nothing is asked. shares: see `Connection.explain`. previews: on how many
    rows to run it; None for all. html: where to write a page about the run. costs: whether the
    explanation is about costs.
    """

    explains: bool
    shares: float | Mapping[str, float] | None
    previews: int | None
    html: Path | None = None
    costs: bool = False

    def check(self, output: Path | None) -> None:
        """Raises ConfigError for options that exclude each other, or a page without a folder."""
        if self.explains and self.previews is not None:
            raise ConfigError("--preview runs a query and --explain does not. Give one of them.")
        if not self.explains and self.previews is None:
            if self.html is not None:
                check_output(self.html, None, "--html")
            return
        what = "explanation" if self.explains else "preview"
        if self.html is not None:
            raise ConfigError(f"--html is a page about a whole run, not about the {what}.")
        if output is not None:
            raise ConfigError(
                f"--output {output} would be overwritten with the {what}. Remove --output, or "
                f"print the {what} with --format csv or --format json."
            )

    def of(
        self, con: Connection, query: str, params: Any, sampling: dict[str, Any], advance: Watch
    ) -> Outcome:
        """Do it. advance: told of progress."""
        if self.explains:
            told = con.explain(query, params, selectivity=self.shares, cost=self.costs, **sampling)
            return Outcome(Result(told.arrow(), (), Report()), told)
        if self.previews is not None:
            seen = con.preview(query, params, rows=self.previews, progress=advance, **sampling)
            return Outcome(seen.result, preview=seen)
        is_recorded = self.html is not None
        return Outcome(con.sql(query, params, progress=advance, record=is_recorded, **sampling))


@dataclass(slots=True)
class Came:
    """answers: of the model to this query. known: those that the ledger knew before."""

    answers: int = 0
    known: int = 0
    _done: dict[str, int] = field(default_factory=dict)

    def counting(self, watch: Watch) -> Watch:
        """Also report progress: new answers one at a time, known ones all at once."""

        def count(stage: str, done: int, total: int) -> None:
            more = done - self._done.get(stage, 0)
            if stage in self._done and more == 1:
                self.answers += 1
            else:
                self.known += more
            self._done[stage] = done

        return watch.after(count)


def what_is_kept(
    ledger: Ledger | None, came: Came, go_on: str = "run the same command to go on"
) -> str:
    """What to tell the user after an interrupt. go_on: how, where a file keeps the answers."""
    kept = 0 if ledger is None else ledger.stored
    if not kept and not came.answers:
        if came.known and ledger is not None and ledger.path is not None:
            return (
                f"No new answer had arrived; the {came.known} known ones stay in {ledger.path}. "
                f"{go_on[0].upper()}{go_on[1:]}."
            )
        return "No answer had arrived."
    if not kept:
        return (
            "No answer of this run is kept: only whole ones are, and above temperature 0 only with "
            "--seed."
        )
    if ledger is None or ledger.path is None:
        return "Give --ledger FILE to keep what is answered."
    return f"Answers so far are in {ledger.path} ({kept} new); {go_on}."


def outcome_of(
    connection: Connection,
    wanted: Wanted,
    text: str,
    params: Any,
    sampling: dict[str, Any],
    *,
    ledger: Path | None,
) -> Outcome:
    """Run the query with its progress shown. Exits where it stops, and says what is kept.

    ledger: None if it ends with this command.
    """
    came, shown = Came(), progress(waiting=connection.waiting)
    with shown_warnings(PartialResultWarning), shown as advance:
        try:
            with interruptible():
                return wanted.of(connection, text, params, sampling, came.counting(advance))
        except KeyboardInterrupt:
            kept = what_is_kept(connection.ledger, came)
            say(f"Interrupted. {kept}")
            raise typer.Exit(INTERRUPTED) from None
        except PendingError as error:
            again = f"{error} The command for it: relquery resume {ledger}"
            say(again)
            raise typer.Exit(PENDING) from None
        except BudgetError as error:
            go_on = f"to go on: relquery resume {ledger} --budget AMOUNT"
            _end(f"{error} {what_is_kept(connection.ledger, came, go_on)}")
        except LateQueryError as error:
            kept = what_is_kept(connection.ledger, came)
            _end(str(error) if ledger is not None else f"{error.__cause__} {kept}")


def _end(said: str) -> NoReturn:
    say(f"Error: {said}", "red")
    raise typer.Exit(ERROR) from None
