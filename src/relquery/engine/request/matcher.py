"""Where an answer is in the grammar that it must follow."""

from __future__ import annotations

from typing import Protocol

from relquery.arrays import Int64s


class Matcher(Protocol):
    """The state of one answer in a grammar. It moves on as the answer grows.

    A token is *forced* if no other token may come next. Forced tokens need no draw: they are
    computed together with the token before them. Where each is to be drawn nevertheless, a matcher
    gives none, and allows them one after the other.
    """

    def begin(self, most: int) -> list[int]:
        """Take the forced tokens that the answer begins with, and return them.

        most: how many at most. One token at least is left to be drawn, so that a forward pass gives
        the answer.
        """

    def take(self, token: int) -> list[int]:
        """Take a drawn token; returns it and the forced tokens after it, which are taken too."""

    def allowed(self) -> Int64s:
        """Ids that may come next, sorted; with end tokens if the answer may end here."""

    @property
    def is_over(self) -> bool:
        """Whether nothing but the end can follow."""

    @property
    def error(self) -> str | None:
        """Why the answer cannot be continued although it is not over, if it cannot."""
