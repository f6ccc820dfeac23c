"""What may be spent, and on what."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from relquery.errors import ConfigError

Unit = Literal["USD", "tokens", "calls"]
Period = Literal["day", "month", "ledger"]
_PERIODS: dict[str, Period] = {"day": "day", "month": "month", "ledger": "ledger"}
_AMOUNT = re.compile(
    r"\s*\$?\s*(?P<number>[\d_,]*\.?\d+(?:[eE]\d+)?)\s*(?P<unit>\$|[a-zA-Z]*)\s*"
    r"(?:(?:/|\bper\b)\s*(?P<per>\w+)\s*)?"
)
_UNITS: dict[str, Unit] = {
    "usd": "USD",
    "$": "USD",
    "dollar": "USD",
    "dollars": "USD",
    "token": "tokens",
    "tokens": "tokens",
    "call": "calls",
    "calls": "calls",
}


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
        found = None if not isinstance(text, str) else _AMOUNT.fullmatch(text)
        name = "" if found is None else found["unit"].lower()
        if found is not None and not name and "$" in found.string:
            name = "usd"
        if found is None or name not in _UNITS:
            raise ConfigError(
                f"budget is {text!r}; write a number and what it counts: '5USD', "
                "'2000000 tokens' or '500 calls'."
            )
        per = found["per"]
        if per is not None and per.lower() not in _PERIODS:
            raise ConfigError(
                f"budget is {text!r}; after the slash goes day, month or ledger: '500USD/month'."
            )
        number = float(found["number"].replace(",", "").replace("_", ""))
        if not number > 0:
            raise ConfigError(f"budget is {text!r}; it must be above 0.")
        unit = _UNITS[name]
        if unit != "USD" and number < 1:
            raise ConfigError(f"budget is {text!r}; it must be at least 1 {unit[:-1]}.")
        return cls(number, unit, None if per is None else _PERIODS[per.lower()])

    def __str__(self) -> str:
        return shown(self.number, self.unit) + (f" a {self.per}" if self.per else "")


def shown(number: float, unit: Unit) -> str:
    """A number of a unit, as a person would write it."""
    if unit == "USD":
        return f"{number:.2f} USD" if number >= 1 or number == 0 else f"{number:.3g} USD"
    count = round(number)
    return f"{count:,} {unit[:-1] if count == 1 else unit}"
