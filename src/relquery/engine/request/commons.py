"""Who may reuse the states of a prompt or of an independent span: one tenant, or all of them."""

from __future__ import annotations

from relquery.engine.request.keys import key_of_owner
from relquery.engine.request.request import Request


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
