"""The bytes that tokens stand for, as the engine tells them once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from relquery.prompt import TokenLogprob


class Spelling:
    """Bytes by token id.

    ask: see Server.ask.
    """

    def __init__(self, ask: Callable[..., Awaitable[Any]]) -> None:
        self._ask = ask
        self._known: dict[int, bytes] = {}

    async def learn(self, tokens: Iterable[int]) -> None:
        """Ask for those tokens that are not known yet, all at once."""
        if new := sorted({token for token in tokens if token not in self._known}):
            found: list[bytes] = await self._ask("spell", new)
            self._known.update(zip(new, found, strict=True))

    async def learn_told(self, told: Iterable[TokenLogprob]) -> None:
        """The same for all tokens that log-probabilities are about."""
        await self.learn(
            token for each in told for token in (each.token, *(other for other, _ in each.top))
        )

    def __getitem__(self, token: int) -> bytes:
        """Of a token that was learned."""
        return self._known[token]
