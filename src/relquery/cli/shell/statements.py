"""Runs one statement of the shell, and shows its result and cost."""

from __future__ import annotations

from relquery.cli.shell.session import Session
from relquery.cli.sql.explained import shown
from relquery.cli.sql.formats import Format, print_errors
from relquery.cli.sql.kept import Came
from relquery.cli.terminal.interrupt import interruptible
from relquery.cli.terminal.show import errors_console, progress, shown_warnings
from relquery.errors import PartialResultWarning
from relquery.ledger import Ledger
from relquery.report import Report
from relquery.sql.binder.statement import Calling, read_statement
from relquery.sql.executor.context import usd_of, waiting_of
from relquery.sql.explain.explanation import SqlExplanation
from relquery.sql.parser.parameters import read_parameters
from relquery.sql.parser.statements import is_explain, split
from relquery.sql.result import Result

PATIENCE = 1.0
"""Seconds in which pressing Ctrl-C again has no further effect."""


def run_statement(session: Session, text: str) -> None:
    """Run a statement. Raises RelqueryError.

    Ctrl-C ends it, and drops what was to run next.
    """
    if is_explain(text):
        _show_explanation(session, text)
    elif not _is_agreed(session, text):
        session.stop("Nothing was sent.")
    else:
        _run(session, text)


def _run(session: Session, text: str) -> None:
    connection, came = session.connection, Came()
    backend = connection.backend
    stored, start = _stored(connection.ledger), connection.clock()
    try:
        with (
            shown_warnings(PartialResultWarning),
            progress(usd=usd_of(backend), waiting=waiting_of(backend)) as advance,
            interruptible(PATIENCE),
        ):
            advanced = came.counting(advance)
            result = connection.sql(text, progress=advanced, **session.setup.sampling)
    except KeyboardInterrupt:
        new = _stored(connection.ledger) - stored
        session.stop(f"Interrupted. {_kept(new, came)}".rstrip())
        return
    seconds = connection.clock() - start
    if result.report.stages:
        session.last = result
    session.screen.show(result)
    print_errors(result, "  .errors shows all")
    if session.is_timed:
        session.screen.say(f"{seconds:.2f} s")


def _stored(ledger: Ledger | None) -> int:
    return 0 if ledger is None else ledger.stored


def _kept(new: int, came: Came) -> str:
    """Which answers to an interrupted statement are kept, in a sentence."""
    if new:
        answers = "1 new answer is" if new == 1 else f"{new:,} new answers are"
        return f"{answers} kept, so the same statement continues from there."
    if came.answers:
        return (
            "No new answer is kept: only complete ones are, and above temperature 0 only with "
            "--seed."
        )
    return "No new answer had arrived." if came.known else ""


def _show_explanation(session: Session, text: str) -> None:
    explanation = session.connection.explain(text, **session.setup.sampling)
    if session.screen.form is Format.TABLE:
        session.screen.draw(shown(explanation, session.screen.width))
    else:
        session.screen.show(Result(explanation.arrow(), (), Report()))


def _is_agreed(session: Session, text: str) -> bool:
    """Whether a statement may be sent. Above the session's limit, the person is asked."""
    if session.limit is None:
        return True
    database = session.connection.database
    (statement,) = split(text, database)
    parameters = read_parameters(None, [statement], database)
    if not isinstance(read_statement(statement, database.kept, parameters), Calling):
        return True
    # What follows EXPLAIN ANALYZE, which runs it.
    explanation = session.connection.explain(statement.query, **session.setup.sampling)
    counts = [call.calls for call in explanation.calls]
    total = None if None in counts else sum(count or 0 for count in counts)
    if total is not None and total <= session.limit:
        return True
    console = errors_console()
    console.print(shown(explanation, console.width))
    return session.ask(f"{_question(explanation, total)} [y/N] ")


def _question(explanation: SqlExplanation, total: int | None) -> str:
    if total is None:
        return "Send an unknown number of calls?"
    bound = "" if all(call.counts == "exact" for call in explanation.calls) else "at most "
    return f"Send {bound}{total:,} {'call' if total == 1 else 'calls'}?"
