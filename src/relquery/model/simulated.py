"""A model that computes nothing: its steps take as long as a machine's would."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from relquery.arrays import Int64s
from relquery.config import EngineConfig
from relquery.engine.cost import LinearCost
from relquery.engine.executor import Chunk, PacedClock, SimulatedExecutor, SteppedClock
from relquery.engine.requests.pieces import Adapter
from relquery.engine.step.shelf import States
from relquery.errors import ConfigError
from relquery.model.footprint import Footprint
from relquery.model.text.tokenizer import Tokenizer

_TEXT = (
    " This answer comes from an engine without a machine. It takes as long as the machine would "
    "take for it, and it is about nothing. It begins again until its time is over."
)
"""Each word is one token of the demo model, so that an answer may begin anywhere."""
_LONGEST = 8
"""Tokens that a string of an answer under a schema has at most."""
_CLOSING = ('"', "}", "]")
_APART = 17
"""Tokens of the text between the answers to two requests in a row, so that they are not alike."""


@dataclass(frozen=True, slots=True)
class SimulatedModel:
    """A ServedModel whose steps take what `cost` says.

    length: tokens of an answer without labels or a schema; None for as many as it may have.
    """

    name: str
    tokenizer: Tokenizer
    cost: LinearCost
    context: int
    length: int | None = None

    @property
    def version(self) -> str:
        """Eight hex digits, by the tokenizer and the length of answers."""
        return self._digest(4)

    @property
    def end(self) -> frozenset[int]:
        """The end token of the tokenizer, which is only drawn where an answer must end."""
        end = self.tokenizer.id_of("eos_token")
        return frozenset() if end is None else frozenset({end})

    @property
    def vocabulary(self) -> int:
        """Tokens of the tokenizer."""
        return len(self.tokenizer)

    @property
    def dtype(self) -> object:
        """It has no states."""
        return None

    @property
    def runs_in(self) -> str:
        """It has no forward pass."""
        return "simulated steps"

    @property
    def adapters(self) -> Mapping[str, Adapter]:
        """None."""
        return {}

    @property
    def is_relocatable(self) -> bool:
        """As most networks."""
        return True

    @property
    def is_simulated(self) -> bool:
        """Yes."""
        return True

    def fingerprint(self) -> str:
        """By the tokenizer and the length of answers: the machine changes no answer."""
        return f"simulated:{self._digest(32)}"

    def executor(
        self, config: EngineConfig, slots: int, since: Callable[[], float]
    ) -> PacedExecutor:
        """A new executor."""
        del config, slots
        (text,), known = self.tokenizer.encode([_TEXT]), self.tokenizer.vocabulary
        closing = (known[mark] for mark in _CLOSING if mark in known)
        return PacedExecutor(
            PacedClock(since), self.cost, written(text), (*sorted(self.end), *closing)
        )

    def named(self, name: str) -> SimulatedModel:
        """The same under another name."""
        return replace(self, name=name)

    def footprint(self) -> Footprint:
        """Raises ConfigError: there is nothing to measure."""
        raise ConfigError("A simulated model takes no memory that could be measured.")

    def close(self) -> None:
        """Nothing is held."""

    def _digest(self, size: int) -> str:
        given = (self.tokenizer.digest(), self.length)
        return hashlib.blake2b(repr(given).encode(), digest_size=size).hexdigest()


class PacedExecutor(SimulatedExecutor):
    """A simulated executor whose cache holds nothing, and whose answers under a schema are short.

    closing: tokens that end an answer, or a part of one under a schema, the best first.
    """

    def __init__(
        self,
        clock: SteppedClock,
        cost: LinearCost,
        answer: Callable[[int, int], int],
        closing: Sequence[int] = (),
    ) -> None:
        super().__init__(clock, cost, answer)
        self._closing = closing

    @property
    def slot_bytes(self) -> None:
        """Bytes of one token in the cache; None if nothing is stored there."""
        return None

    def store(self, memory: int, folder: Path | None, disk: int) -> States:
        """Raises ConfigError: there is nothing to store."""
        raise ConfigError("A simulated model has no states that could be stored. Omit the store.")

    def reserve(self) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""

    def _match(self, allowed: Int64s, token: int, chunk: Chunk) -> int:
        """The text's token in a string, unless it is long enough; else what ends most, if that may
        come; else any."""
        is_long = (chunk.position + len(chunk.tokens) + chunk.request) % _LONGEST == 0
        wanted = [*self._closing, token] if is_long else [token, *self._closing]
        places = np.minimum(np.searchsorted(allowed, wanted), len(allowed) - 1)
        possible = (
            each
            for each, is_allowed in zip(wanted, places, strict=True)
            if allowed[is_allowed] == each
        )
        match = next(possible, None)
        return super()._match(allowed, token, chunk) if match is None else match


def written(text: Sequence[int]) -> Callable[[int, int], int]:
    """The token that each request has at each position, read on and on from a text's tokens."""
    return lambda request, position: text[(position + _APART * request) % len(text)]
