"""The state of an open shell, and where it shows results and messages."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console, RenderableType

from relquery.backends.base import Backend, LazyBackend
from relquery.cli.shell.split import Tables
from relquery.cli.sql.options import Setup, load_shown
from relquery.cli.sql.output import SHOWN, TEXTS, Format, drawn
from relquery.cli.terminal.interrupt import deferred
from relquery.cli.terminal.show import fits, records, result_table, say
from relquery.connection import Connection
from relquery.errors import ConfigError, QueryError
from relquery.sql.render import printable, view_of
from relquery.sql.result import Result
from relquery.sql.retrieval.functions import install_count

_WIDE = 100_000
"""Columns of a file."""


@dataclass(slots=True)
class Screen:
    """Results go to standard output or to a file, messages to standard error.

    form: of results. rows: how many rows of a result are shown; a file gets all. path: of the file.
    """

    form: Format = Format.TABLE
    rows: int = SHOWN
    path: Path | None = None
    _file: TextIO | None = None

    @property
    def width(self) -> int:
        """The width available for results, in columns."""
        return Console().width if self._file is None else _WIDE

    def show(self, result: Result) -> None:
        """Show the rows of a result; nothing for a statement that returns none."""
        if not result.columns:
            return
        if self.form is not Format.TABLE:
            self._write(TEXTS[self.form](result))
        elif view_of(result.table, "text") is not None:
            self.draw(drawn(result.table))
        elif self._file is not None:
            self.draw(result_table(result, len(result)))
        elif fits(result, self.rows, self.width):
            self.draw(result_table(result, self.rows))
        else:
            self.draw(records(result, self.rows))

    def draw(self, view: RenderableType) -> None:
        """Show a table or another renderable."""
        if self._file is None:
            Console().print(view)
            return
        drawn = Console(file=io.StringIO(), width=_WIDE, color_system=None)
        drawn.print(view)
        assert isinstance(drawn.file, io.StringIO)
        lines = drawn.file.getvalue().splitlines()
        self._write("".join(f"{line.rstrip()}\n" for line in lines))

    def say(self, text: str, style: str | None = None) -> None:
        """Show a message."""
        shown = printable(text, "\n\t")
        say(shown, style)

    def redirect(self, path: Path | None) -> None:
        """Send results to a file, which is emptied, or to standard output. Raises ConfigError."""
        new = None
        if path is not None:
            try:
                new = path.open("w", encoding="utf-8", newline="")
            except OSError as error:
                raise ConfigError(f"{path} cannot be written: {error.strerror}.") from error
        self.close()
        self._file, self.path = new, path

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._file is not None:
            file, self._file, self.path = self._file, None, None
            with suppress(OSError):  # writing to it has said so
                file.close()

    def _write(self, text: str) -> None:
        file = sys.stdout if self._file is None else self._file
        file.write(text)
        file.flush()


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

    setup: Setup
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
    def open(cls, setup: Setup, screen: Screen, ask: Ask) -> Session:
        """Open the database; no model is loaded."""
        backend = _lazy(setup)
        return cls(setup, setup.connect(backend), backend, screen, ask)

    @property
    def model(self) -> str:
        """The name of the model that answers."""
        return self.setup.model or "demo"

    def refresh(self) -> None:
        """Update the tables for completion."""
        with suppress(QueryError):  # within a transaction that failed
            self.known = self.connection.tables()

    def change_model(self, name: str) -> None:
        """Change to another model, which is loaded at its first call."""
        self.setup = replace(self.setup, model=name)
        before, self.backend = self.backend, _lazy(self.setup)
        models = replace(self.setup.models(), opened=self.connection.models.opened)
        self.connection = replace(
            self.connection, backend=self.backend, clock=self.backend.clock, models=models
        )
        install_count(self.connection.database, self.backend)
        before.close()

    def change_database(self, path: Path) -> None:
        """Open a DuckDB file instead of the present database. Registered files stay readable.

        Raises TableError; the present database then stays open.
        """
        setup = replace(self.setup, database=str(path))
        # The answers that this session has paid for are in the present ledger.
        opened = replace(setup, ledger=None).connect(self.backend)
        if opened.ledger is not None:
            opened.ledger.close()
        self.connection.database.close()
        ledger, models = self.connection.ledger, self.connection.models
        self.setup, self.connection = setup, replace(opened, ledger=ledger, models=models)

    def register(self, name: str, path: Path) -> None:
        """Make a file readable as a table. Raises TableError."""
        self.connection.register(name, path)
        self.setup = replace(self.setup, tables={**self.setup.tables, name: path})

    def stop(self, text: str) -> None:
        """Show a message, and drop the entries that were to run next."""
        left = len(self.pending)
        self.pending.clear()
        more = (
            f" {left} more {'entry was' if left == 1 else 'entries were'} not run." if left else ""
        )
        self.screen.say(text + more)

    def close(self) -> None:
        """Close the file of results, the database, the ledger and the model."""
        self.screen.close()
        self.connection.close()
        self.backend.close()


@dataclass(slots=True)
class _Loader:
    """Loads a model once, even if Ctrl-C is pressed meanwhile."""

    model: str
    options: Mapping[str, Any]
    screen_says: Callable[[str], None]
    loaded: Backend | None = None

    def __call__(self) -> Backend:
        if self.loaded is None:
            with deferred(self._heard):
                self.loaded = load_shown(self.model, self.options)
        return self.loaded

    def _heard(self) -> None:
        self.screen_says(
            f"Stopping when {self.model} is loaded. Press Ctrl-C again to stop at once."
        )


def _lazy(setup: Setup) -> LazyBackend:
    return LazyBackend(_Loader(setup.model or "demo", setup.options, Screen().say))
