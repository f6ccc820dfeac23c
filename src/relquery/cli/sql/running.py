"""Runs the query of `relquery sql`, and says what is kept where it stops."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import typer

from relquery.cli.sql.kept import Came, what_is_kept
from relquery.cli.sql.wanted import Outcome, Wanted
from relquery.cli.terminal.exits import ERROR, INTERRUPTED, PENDING
from relquery.cli.terminal.interrupt import interruptible
from relquery.cli.terminal.show import progress, say, shown_warnings
from relquery.connection import Connection
from relquery.errors import BudgetError, LateQueryError, PartialResultWarning, PendingError
from relquery.sql.executor.context import usd_of, waiting_of


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
    came, backend = Came(), connection.backend
    shown = progress(usd=usd_of(backend), waiting=waiting_of(backend))
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
