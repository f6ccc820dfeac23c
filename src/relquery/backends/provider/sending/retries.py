"""How long to wait before a request is sent again."""

from __future__ import annotations

from random import Random

_FIRST, _LONGEST = 0.5, 16.0
_SPREAD = 0.1
"""What is added to a wait that the server names, at most, so that not all come back at once."""
TOO_LONG = 600.0
"""Seconds that nobody waits for: a limit of a day, for example."""


def backoff(tries: int, told: float | None, chance: Random) -> float:
    """Seconds until the next try. tries: so far. told: seconds that the server names."""
    if told is not None:
        return told * (1 + _SPREAD * chance.random())
    return chance.random() * min(_LONGEST, _FIRST * 2.0 ** (tries - 1))
