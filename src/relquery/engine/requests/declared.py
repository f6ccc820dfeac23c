"""A client's declarations about a relQuery, and the scope in which its states may be reused."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from relquery.config import MOST_COUNTED
from relquery.engine.requests.pieces import key_of_owner
from relquery.engine.requests.request import Request
from relquery.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Declared:
    """A client's declarations about the relQuery that its requests belong to.

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


class Commons:
    """The independent spans that are registered for all tenants.

    A tenant cannot reuse another tenant's states of any other span, so response times do not
    reveal which spans other tenants sent. Requests without a tenant share their spans with one
    another.

    share_prefixes: whether tenants share the states of all other text, up to a span that is not
    registered. If not, requests with a tenant share them with none but its own.
    """

    def __init__(self, block_size: int, *, share_prefixes: bool = True) -> None:
        self._block_size, self._share_prefixes = block_size, share_prefixes
        self._keys: set[bytes] = set()

    def register(self, request: Request) -> None:
        """Let all tenants share the spans of a request, and the spans in them."""
        self._keys.update(self._spans(request).values())

    def claim(self, request: Request, tenant: str) -> None:
        """Make what tenants do not share its tenant's own, before anything reads its keys."""
        if not tenant:
            return
        own = set() if self._share_prefixes else {0}
        if len(request.pieces) > 1:
            spans = self._spans(request)
            own |= {chain for chain, key in spans.items() if key not in self._keys}
        if own:
            request.own(own, key_of_owner(tenant))

    def _spans(self, request: Request) -> dict[int, bytes]:
        """The key of each span as a whole, by its number among the request's chains."""
        request.name_spans(self._block_size)
        # The last piece of a chain names it, with all spans in it.
        return {piece.chain: piece.last_key for piece in request.pieces if piece.chain}
