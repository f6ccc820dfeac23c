"""What the options of `relquery sql` say: which model answers, about which tables, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.text import Text

from relquery.backends.base import Backend
from relquery.backends.lazy import LazyBackend
from relquery.backends.load import default_form, load
from relquery.cli.terminal.show import errors_console, shown_warnings
from relquery.config import Order, PromptForm
from relquery.connection import Connection, connect


@dataclass(frozen=True, slots=True)
class Setup:
    """options: of the backend. tables: files by name. sampling: defaults of all calls.

    model: None if none was given, so that the demo model answers. For the others see `connect`.
    """

    model: str | None
    options: Mapping[str, Any]
    tables: Mapping[str, Path]
    database: str
    order: str
    guard: float | None
    guard_rows: int
    ledger: Path | None
    embedder: str
    index: Path | None
    sampling: Mapping[str, Any]
    form: str | None = None

    def backend(self) -> LazyBackend:
        """The backend, which is loaded when it is first asked."""
        return LazyBackend(partial(load_shown, self.model or "demo", self.options))

    def _form(self) -> PromptForm:
        if self.form is None:  # the backend is not asked, as that would open it
            return default_form(self.model or "demo")
        return self.form  # type: ignore[return-value]  # QueryConfig checks it

    def connect(self, backend: LazyBackend) -> Connection:
        """Open the database, with its tables."""
        with shown_warnings():
            connection = connect(
                backend,
                database=self.database,
                order=_order(self.order),
                guard=self.guard,
                guard_rows=self.guard_rows,
                form=self._form(),
                ledger=":memory:" if self.ledger is None else self.ledger,
                embedder=self.embedder,
                index=self.index,
                clock=backend.clock,
            )
        try:
            for name, path in self.tables.items():
                connection.register(name, path)
        except BaseException:
            connection.close()
            raise
        return connection


def load_shown(model: str, options: Mapping[str, Any]) -> Backend:
    """Load a model, and say so meanwhile."""
    with errors_console().status(Text(f"loading {model}")):
        return load(model, **options)


def _order(name: str) -> Order:
    return name  # type: ignore[return-value]  # QueryConfig checks it
