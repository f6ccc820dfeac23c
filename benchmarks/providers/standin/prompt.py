"""A request's prompt as the caches see it: blocks in the order read, some of them marked."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from itertools import chain

from benchmarks.providers.standin.tokens import MESSAGE, Encode


@dataclass(frozen=True, slots=True)
class Block:
    """A text of a message. begins: whether the message begins with it.

    lives: seconds for which the prefix up to its end is kept after its last use, if it is marked.
    """

    role: str
    text: str
    begins: bool = False
    lives: float | None = None


@dataclass(frozen=True, slots=True)
class Sent:
    """The prompt of a request. key: its `prompt_cache_key`."""

    blocks: tuple[Block, ...]
    key: str = ""

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

    encode: Encode
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

    def text(self, text: str) -> int:
        """Tokens of an answer."""
        return len(self.encode(text))

    def tokens(self, sent: Sent) -> list[object]:
        """All tokens of a prompt; texts of one message are read as one."""
        messages: list[tuple[str, list[str]]] = []
        for block in sent.blocks:
            if block.begins or not messages:
                messages.append((block.role, []))
            messages[-1][1].append(block.text)
        return list(
            chain.from_iterable(
                [(role, place) for place in range(MESSAGE)] + list(self.encode("".join(texts)))
                for role, texts in messages
            )
        )


@lru_cache(1 << 16)
def chained(before: bytes, part: str) -> bytes:
    """The key of a prefix: of the one before it and what follows."""
    return blake2b(before + part.encode(), digest_size=16).digest()
