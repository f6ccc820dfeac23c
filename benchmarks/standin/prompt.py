"""A request's prompt as the caches see it: blocks in the order read, some marked, in tokens.

Providers do not publish their tokenizers. `pieces` cuts words into pieces of at most five letters,
in the manner of a byte-pair tokenizer with a small vocabulary: another tokenizer than the one that
relquery estimates with. `scripts/bench providers` counts with Llama 3's where it has its ranks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from itertools import chain

Encode = Callable[[str], Sequence[Hashable]]
"""The tokens of a text; equal tokens are equal values."""

_PIECE = re.compile(r" ?[^\W\d_]{1,5}|\d{1,3}|\s+|[^\w\s]{1,2}|_")
MESSAGE = 4
"""Tokens that a message takes besides its text."""


def pieces(text: str) -> list[str]:
    """The stand-in's own tokens."""
    return _PIECE.findall(text)


@dataclass(frozen=True, slots=True)
class Block:
    """A text of a message."""

    role: str
    text: str
    begins: bool = False
    """Whether the message begins with it."""
    lives: float | None = None
    """Seconds for which the prefix up to its end is kept after its last use, if it is marked."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The prompt of a request."""

    blocks: tuple[Block, ...]
    key: str = ""
    """Its `prompt_cache_key`."""

    @property
    def text(self) -> str:
        """All that the model reads."""
        return "".join(block.text for block in self.blocks)

    @property
    def digest(self) -> int:
        """A number from 0 to below 2^64 that is the same for equal texts, in every process."""
        return int.from_bytes(blake2b(self.text.encode(), digest_size=8).digest())


@dataclass(slots=True)
class Counter:
    """Counts tokens. Texts that come again, as the fields of a table do, are counted once."""

    encode: Encode = pieces
    most: int = 50_000
    _sizes: dict[str, int] = field(default_factory=dict)

    def block(self, block: Block) -> int:
        """Tokens of a block, with those of its message if the message begins with it."""
        size = self._sizes.get(block.text)
        if size is None:
            if len(self._sizes) == self.most:
                self._sizes.clear()
            size = self._sizes[block.text] = len(self.encode(block.text))
        return size + MESSAGE * block.begins

    def tokens(self, sent: Sent) -> list[object]:
        """All tokens of a prompt; texts of one message are read as one."""
        messages: list[tuple[str, list[str]]] = []
        for block in sent.blocks:
            if block.begins or not messages:
                messages.append((block.role, []))
            messages[-1][1].append(block.text)
        each = (
            [*((role, place) for place in range(MESSAGE)), *self.encode("".join(texts))]
            for role, texts in messages
        )
        return list(chain.from_iterable(each))


@lru_cache(1 << 16)
def chained(before: bytes, part: str) -> bytes:
    """The key of a prefix: of the one before it and what follows."""
    return blake2b(before + part.encode(), digest_size=16).digest()
