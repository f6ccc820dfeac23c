"""Budgets, and what several processes have spent of them: in an SQLite file they share.

What a call may cost at most counts as spent before it is sent, and is corrected once it has ended.
So a process that is killed at any moment leaves too much counted, and never too little.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from relquery.errors import ConfigError

Unit = Literal["USD", "tokens", "calls"]
Period = Literal["day", "month", "ledger"]
_AMOUNT = re.compile(
    r"\s*\$?\s*(?P<number>[\d_,]*\.?\d+(?:[eE]\d+)?)\s*(?P<unit>\$|[a-zA-Z]*)\s*"
    r"(?:(?:/|\bper\b)\s*(?P<per>\w+)\s*)?"
)
_UNITS: dict[str, Unit] = dict.fromkeys(("usd", "$", "dollar", "dollars"), "USD")
_UNITS |= {"token": "tokens", "tokens": "tokens", "call": "calls", "calls": "calls"}


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of US dollars, of tokens (prompt and answer together), or of calls."""

    number: float
    unit: Unit
    per: Period | None = None
    """What it is for, across processes that share a ledger; None: for one connection."""

    @classmethod
    def of(cls, text: object) -> Amount:
        """From "5USD", "$5", "500 calls", "2000000 tokens/day" or the like. Raises ConfigError."""
        if isinstance(text, Amount):
            return text
        match = None if not isinstance(text, str) else _AMOUNT.fullmatch(text)
        name = "" if match is None else match["unit"].lower()
        if match is not None and not name and "$" in match.string:
            name = "usd"
        if match is None or name not in _UNITS:
            raise ConfigError(
                f"budget is {text!r}; write a number and what it counts: '5USD', "
                "'2000000 tokens' or '500 calls'."
            )
        per: Any = match["per"] and match["per"].lower()
        if per is not None and per not in get_args(Period):
            raise ConfigError(
                f"budget is {text!r}; after the slash goes day, month or ledger: '500USD/month'."
            )
        number = float(match["number"].replace(",", "").replace("_", ""))
        if not number > 0:
            raise ConfigError(f"budget is {text!r}; it must be above 0.")
        unit = _UNITS[name]
        if unit != "USD" and number < 1:
            raise ConfigError(f"budget is {text!r}; it must be at least 1 {unit[:-1]}.")
        return cls(number, unit, per)

    def __str__(self) -> str:
        return shown(self.number, self.unit) + (f" a {self.per}" if self.per else "")


def shown(number: float, unit: Unit) -> str:
    """A number of a unit, as a person would write it."""
    if unit == "USD":
        return f"{number:.2f} USD" if number >= 1 or number == 0 else f"{number:.3g} USD"
    count = round(number)
    return f"{count:,} {unit[:-1] if count == 1 else unit}"


_TABLE = (
    "CREATE TABLE IF NOT EXISTS spending (period TEXT, unit TEXT, spent REAL NOT NULL, "
    "PRIMARY KEY (period, unit)) WITHOUT ROWID"
)
_PERIODS = {"day": "%Y-%m-%d", "month": "%Y-%m", "ledger": "ledger"}
_BUSY_SECONDS = 60.0
_SLACK = 1e-9  # of a budget, for what rounding leaves


class Reservation(float):
    """An amount that counts as spent. period: in which it counts."""

    period: str

    @classmethod
    def of(cls, amount: float, period: str) -> Reservation:
        """An amount of a period."""
        held = cls(amount)
        held.period = period
        return held


@dataclass(frozen=True, slots=True)
class Spending:
    """Amounts spent of one budget, in a file. Raises ConfigError if it cannot be used."""

    path: Path
    """A ledger, or a file of its own."""
    budget: Amount
    """What may be spent in each period."""
    now: Callable[[], float] = time.time
    """Seconds since 1970. Days and months are those of UTC."""

    def __post_init__(self) -> None:
        try:
            with transaction(self.path) as connection:
                connection.execute(_TABLE)
        except sqlite3.Error as error:
            raise ConfigError(
                f"The budget of {self.budget} cannot be counted in {self.path}: {error}. Give the "
                "path of a ledger that can be written."
            ) from error

    def take(self, amount: float) -> Reservation | None:
        """Count an amount as spent; None, and nothing is counted, if the budget has no room."""
        period = self.period
        with transaction(self.path) as connection:
            room = self.budget.number * (1 + _SLACK) - self._spent(connection, period)
            if amount > room:
                return None
            self._add(connection, period, amount)
        return Reservation.of(amount, period)

    def correct(self, held: float, cost: float) -> None:
        """Count what a call has cost in place of what was held for it."""
        if held != cost:
            with transaction(self.path) as connection:
                self._add(connection, getattr(held, "period", self.period), cost - held)

    @property
    def spent(self) -> float:
        """What counts as spent in the period that is running."""
        with transaction(self.path) as connection:
            return self._spent(connection, self.period)

    @property
    def period(self) -> str:
        """The name of the period that is running."""
        moment = datetime.fromtimestamp(self.now(), UTC)
        return moment.strftime(_PERIODS[self.budget.per or "ledger"])

    def _spent(self, connection: sqlite3.Connection, period: str) -> float:
        row = connection.execute(
            "SELECT spent FROM spending WHERE period = ? AND unit = ?", (period, self.budget.unit)
        ).fetchone()
        return 0.0 if row is None else float(row[0])

    def _add(self, connection: sqlite3.Connection, period: str, amount: float) -> None:
        connection.execute(
            "INSERT INTO spending VALUES (?, ?, ?) ON CONFLICT (period, unit) "
            "DO UPDATE SET spent = spent + excluded.spent",
            (period, self.budget.unit, amount),
        )


@contextmanager
def transaction(path: Path, *, is_durable: bool = False) -> Iterator[sqlite3.Connection]:
    """A transaction that no other process has at the same time; it is rolled back on an error.

    is_durable: whether it is on disk when the block ends.
    """
    opened = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
    with closing(opened) as connection:
        connection.execute(f"PRAGMA synchronous = {'FULL' if is_durable else 'NORMAL'}")
        connection.execute("BEGIN IMMEDIATE")
        with connection:
            yield connection
