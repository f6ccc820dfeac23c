"""The spans whose blocks are kept, and which requests still compute one. Of the scheduler."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np

from relquery.vllm.spans.composite import SPAN, SPANS

Key = bytes


def span_key(salt: str | None, tokens: Sequence[int]) -> Key:
    """A span by its tokens. salt: spans of different salts are not shared."""
    hashed = sha256((salt or "").encode() + b"\0")
    hashed.update(np.asarray(tokens, np.int64).tobytes())
    return hashed.digest()


@dataclass(frozen=True, slots=True)
class Part:
    """A span in a prompt. start, length: in tokens."""

    key: Key
    start: int
    length: int


def is_span(said: Mapping[str, Any]) -> bool:
    """Whether a request's prompt is a span."""
    return bool(said.get(SPAN))


def parts_of(
    said: Mapping[str, Any], salt: str | None, prompt: Sequence[int], block: int
) -> list[Part]:
    """The spans with which a prompt begins. Raises ValueError if what the request says is wrong."""
    lengths = said.get(SPANS)
    if not isinstance(lengths, list) or not lengths:
        raise ValueError(f"{SPANS} must be a list of lengths in tokens")
    parts, start = [], 0
    for length in lengths:
        if type(length) is not int or length < block or length % block:
            raise ValueError(f"{SPANS} has {length!r}; a span has a multiple of {block} tokens")
        parts.append(Part(span_key(salt, prompt[start : start + length]), start, length))
        start += length
    if start >= len(prompt):
        raise ValueError(
            f"the spans have {start} tokens, the prompt {len(prompt)}; more must follow"
        )
    return parts


def salt_of(salt: str | None, parts: Sequence[Part]) -> str:
    """The cache salt of a prompt that begins with spans.

    Its blocks hold other states than a plain prompt's with the same tokens, or one's with spans of
    other lengths.
    """
    return f"{salt or ''}|{SPANS}:{','.join(str(part.length) for part in parts)}"


@dataclass(slots=True)
class Pinned:
    """Spans whose blocks are kept, the least recently used first.

    pool: vLLM's block pool. most: blocks that they may hold together.
    """

    pool: Any
    most: int
    blocks: OrderedDict[Key, list[int]] = field(default_factory=OrderedDict)
    held: int = 0

    def pin(self, key: Key, blocks: list[int]) -> bool:
        """Keep the blocks of a span that has been computed; whether there is room for it."""
        if key in self.blocks:
            self.blocks.move_to_end(key)
            return True
        if len(blocks) > self.most:
            return False
        while self.held + len(blocks) > self.most:
            self._drop(next(iter(self.blocks)))
        self.pool.touch([self.pool.blocks[number] for number in blocks])
        self.blocks[key] = blocks
        self.held += len(blocks)
        return True

    def use(self, key: Key) -> list[int]:
        """The blocks of a span. Raises KeyError."""
        self.blocks.move_to_end(key)
        return self.blocks[key]

    def clear(self) -> None:
        """Let go of all."""
        for key in [*self.blocks]:
            self._drop(key)

    def _drop(self, key: Key) -> None:
        blocks = self.blocks.pop(key)
        self.held -= len(blocks)
        # The last ones go first: a prefix is of use without them, and they are not without it.
        self.pool.free_blocks([self.pool.blocks[number] for number in reversed(blocks)])
