"""What a client declares about a relQuery."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from relquery.config import MOST_COUNTED
from relquery.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Declared:
    """What a client says about the relQuery that its requests belong to.

    id: the client's name for it. Requests of several submits with one tenant and id are one
    relQuery; None if no other submit belongs to it. rows: requests that will come in all; if more
    come, they are served too. deadline: seconds from the relQuery's arrival within which its last
    answer is needed; that of its first request counts.

    Raises ConfigError for values out of range, and for rows without an id.
    """

    id: str | None = None
    rows: int | None = None
    deadline: float | None = None

    def __post_init__(self) -> None:
        if self.id is not None and not (isinstance(self.id, str) and self.id):
            raise ConfigError(f"relquery is {self.id!r}; it must be a string that is not empty.")
        self._check_rows()
        seconds = self.deadline
        is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
        if seconds is not None and not (is_number and 0 < seconds < inf):
            raise ConfigError(
                f"deadline is {seconds!r}; it must be a finite number of seconds above 0."
            )

    def _check_rows(self) -> None:
        rows = self.rows
        if rows is None:
            return
        if not isinstance(rows, int) or isinstance(rows, bool) or not 1 <= rows <= MOST_COUNTED:
            raise ConfigError(
                f"rows is {rows!r}; it must be a whole number from 1 to {MOST_COUNTED:,}."
            )
        if self.id is None:
            raise ConfigError(
                "rows is given, but nothing by which other requests could belong to the same "
                "relQuery. Name it (in Python relquery=..., over HTTP its id), or leave out rows."
            )


NOTHING = Declared()
"""Nothing is declared: a relQuery without a name."""
