"""What several processes have spent of one budget in a day or month: in an SQLite file they share.

What a call may cost at most counts as spent before it is sent, and is corrected once it has ended.
So a process that is killed at any moment leaves too much counted, and never too little.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from relquery.backends.provider.amounts import Amount
from relquery.errors import ConfigError

_TABLE = (
    "CREATE TABLE IF NOT EXISTS spending (period TEXT, unit TEXT, spent REAL NOT NULL, "
    "PRIMARY KEY (period, unit)) WITHOUT ROWID"
)
_PERIODS = {"day": "%Y-%m-%d", "month": "%Y-%m", "ledger": "ledger"}
_BUSY_SECONDS = 60.0
_SLACK = 1e-9  # of a budget, for what rounding leaves


class Held(float):
    """An amount that counts as spent. period: in which it counts."""

    period: str

    @classmethod
    def of(cls, amount: float, period: str) -> Held:
        """An amount of a period."""
        held = cls(amount)
        held.period = period
        return held


@dataclass(frozen=True, slots=True)
class Spending:
    """What was spent of one budget, in a file. Raises ConfigError if it cannot be used."""

    path: Path
    """A ledger, or a file of its own."""
    budget: Amount
    """What may be spent in each period."""
    now: Callable[[], float] = time.time
    """Seconds since 1970. Days and months are those of UTC."""

    def __post_init__(self) -> None:
        try:
            with self._writing() as connection:
                connection.execute(_TABLE)
        except sqlite3.Error as error:
            raise ConfigError(
                f"The budget of {self.budget} cannot be counted in {self.path}: {error}. Give the "
                "path of a ledger that can be written."
            ) from error

    def take(self, amount: float) -> Held | None:
        """Count an amount as spent; None, and nothing is counted, if the budget has no room."""
        period = self.period
        with self._writing() as connection:
            room = self.budget.number * (1 + _SLACK) - self._spent(connection, period)
            if amount > room:
                return None
            self._add(connection, period, amount)
        return Held.of(amount, period)

    def correct(self, held: float, cost: float) -> None:
        """Count what a call has cost in place of what was held for it."""
        if held != cost:
            with self._writing() as connection:
                self._add(connection, getattr(held, "period", self.period), cost - held)

    @property
    def spent(self) -> float:
        """What counts as spent in the period that is running."""
        with self._writing() as connection:
            return self._spent(connection, self.period)

    @property
    def period(self) -> str:
        """The name of the period that is running."""
        moment = datetime.fromtimestamp(self.now(), UTC)
        return moment.strftime(_PERIODS[self.budget.per or "ledger"])

    def _spent(self, connection: sqlite3.Connection, period: str) -> float:
        found = connection.execute(
            "SELECT spent FROM spending WHERE period = ? AND unit = ?", (period, self.budget.unit)
        ).fetchone()
        return 0.0 if found is None else float(found[0])

    def _add(self, connection: sqlite3.Connection, period: str, amount: float) -> None:
        connection.execute(
            "INSERT INTO spending VALUES (?, ?, ?) ON CONFLICT (period, unit) "
            "DO UPDATE SET spent = spent + excluded.spent",
            (period, self.budget.unit, amount),
        )

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that no other process has at the same time."""
        opened = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)
        with closing(opened) as connection:
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                yield connection
