"""The relQueries that clients have named."""

from __future__ import annotations

from collections import OrderedDict

from relquery.engine.request.relquery import RelQuery

FORGOTTEN_AFTER = 600.0
"""Seconds without an open request after which a name means a new relQuery."""
MOST_IDLE = 4096
"""Named relQueries without an open request that are remembered, the latest ones."""


class NamedQueries:
    """The relQueries with a name, by tenant and name.

    One is forgotten when all its declared rows have come and ended, or some time after its last
    request has ended.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], RelQuery] = {}
        self._idle: OrderedDict[tuple[str, str], RelQuery] = OrderedDict()  # longest first

    def __len__(self) -> int:
        return len(self._known)

    def find(self, tenant: str, name: str | None, now: float) -> RelQuery | None:
        """The relQuery that a tenant gave this name."""
        self._forget_idle(now)
        return None if name is None else self._known.get((tenant, name))

    def add(self, relquery: RelQuery) -> None:
        """Remember a relQuery that has a request, if it has a name."""
        if relquery.name is not None:
            key = relquery.tenant, relquery.name
            self._known[key] = relquery
            self._idle.pop(key, None)

    def rest(self, relquery: RelQuery) -> None:
        """Note that a relQuery has no open request any more."""
        if relquery.name is None:
            return
        key = relquery.tenant, relquery.name
        if relquery.size == 0 or (relquery.rows is not None and not relquery.expected):
            self._known.pop(key, None)
            self._idle.pop(key, None)
            return
        self._idle[key] = relquery
        self._idle.move_to_end(key)
        if len(self._idle) > MOST_IDLE:
            self._forget_first()

    def _forget_idle(self, now: float) -> None:
        while self._idle:
            ended = next(iter(self._idle.values())).ended
            assert ended is not None
            if now - ended < FORGOTTEN_AFTER:
                return
            self._forget_first()

    def _forget_first(self) -> None:
        key, _ = self._idle.popitem(last=False)
        del self._known[key]
