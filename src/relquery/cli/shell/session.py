"""The state of an open shell, and where it shows results and messages."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console, RenderableType

from relquery.backends.base import Backend, LazyBackend
from relquery.cli.interrupt import deferred
from relquery.cli.shell.completion import Tables
from relquery.cli.sql.options import ConnectionOptions, load_shown
from relquery.cli.sql.output import SHOWN, Format, in_form, rows_view
from relquery.cli.tables import find_table
from relquery.cli.terminal import say
from relquery.connection import Connection
from relquery.errors import QueryError
from relquery.sql.render import printable
from relquery.sql.result import Result
from relquery.sql.retrieval.functions import install_count


@dataclass(slots=True)
class Screen:
    """Results go to standard output, messages to standard error.

    form: of results. rows: how many rows of a table are shown.
    """

    form: Format = Format.TABLE
    rows: int = SHOWN

    def show(self, result: Result) -> None:
        """Show the rows of a result; nothing for a statement that returns none."""
        if not result.columns:
            return
        if self.form is not Format.TABLE:
            sys.stdout.write(in_form(result, self.form))
            sys.stdout.flush()
        else:
            self.draw(rows_view(result, self.rows, Console().width))

    def draw(self, view: RenderableType) -> None:
        """Show a table or another renderable."""
        Console().print(view)

    def say(self, text: str, style: str | None = None) -> None:
        """Show a message."""
        say(printable(text, "\n\t"), style)


Ask = Callable[[str], bool]
"""Asks the person a yes-or-no question; True for yes."""


@dataclass(slots=True)
class Session:
    """An open shell.

    setup: with the present model, database and tables. known: columns by table, for completion.
    limit: statements with more calls than this are shown before they are sent; None: no statement
    is. last: the last result with calls. pending: entries to run next. reading: the files of
    `.read` that they come from.
    """

    setup: ConnectionOptions
    connection: Connection
    backend: LazyBackend
    screen: Screen
    ask: Ask
    limit: int | None = None
    is_timed: bool = False
    is_over: bool = False
    last: Result | None = None
    known: Tables = field(default_factory=dict)
    pending: list[str] = field(default_factory=list)
    reading: list[Path] = field(default_factory=list)

    @classmethod
    def open(cls, setup: ConnectionOptions, screen: Screen, ask: Ask) -> Session:
        """Open the database; no model is loaded."""
        backend = _lazy(setup)
        return cls(setup, setup.connect(backend), backend, screen, ask)

    @property
    def model(self) -> str:
        """The name of the model that answers."""
        return self.setup.answering

    @property
    def stored(self) -> int:
        """Answers that the session has stored in its ledger."""
        ledger = self.connection.ledger
        return 0 if ledger is None else ledger.stored

    def refresh(self) -> None:
        """Update the tables for completion."""
        with suppress(QueryError):  # within a transaction that failed
            self.known = self.connection.tables()

    def change_model(self, name: str) -> None:
        """Change to another model, which is loaded at its first call. Raises ConfigError."""
        setup = replace(self.setup, model=name)
        before, backend = self.backend, _lazy(setup)
        models = replace(setup.models(), opened=self.connection.models.opened)
        self.setup, self.backend = setup, backend
        self.connection = replace(
            self.connection, backend=backend, clock=backend.clock, models=models
        )
        install_count(self.connection.database, backend)
        before.close()

    def change_database(self, path: Path) -> None:
        """Open a DuckDB file instead of the present database. Registered files stay readable.

        Raises TableError; the present database then stays open.
        """
        setup = replace(self.setup, database=str(path))
        # The answers that this session has paid for are in the present ledger.
        opened = setup.connect(self.backend, stores=False)
        self.connection.database.close()
        ledger, models = self.connection.ledger, self.connection.models
        self.setup, self.connection = setup, replace(opened, ledger=ledger, models=models)

    def register(self, name: str, path: Path) -> None:
        """Make a file readable as a table. Raises TableError."""
        self.connection.register(name, path)
        table = [spec for spec in self.setup.table or () if find_table(spec)[0] != name]
        self.setup = replace(self.setup, table=[*table, f"{name}={path}"])

    def stop(self, text: str) -> None:
        """Show a message, and drop the entries that were to run next."""
        left = len(self.pending)
        self.pending.clear()
        more = (
            f" {left} more {'entry was' if left == 1 else 'entries were'} not run." if left else ""
        )
        self.screen.say(text + more)

    def close(self) -> None:
        """Close the database, the ledger and the model."""
        self.connection.close()
        self.backend.close()


def _lazy(setup: ConnectionOptions) -> LazyBackend:
    """The model, which is loaded once, even if Ctrl-C is pressed meanwhile."""
    model, options, loaded = setup.answering, setup.of_backend(), list[Backend]()

    def load() -> Backend:
        if not loaded:
            with deferred(lambda: say(_STOPPING.format(model))):
                loaded.append(load_shown(model, options))
        return loaded[0]

    return LazyBackend(load)


_STOPPING = "Stopping when {} is loaded. Press Ctrl-C again to stop at once."
