"""Block keys: content hashes that name a block together with everything it attends to."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

ROOT = b""
"""Key before the first block of every chain."""


def block_key(previous: bytes, tokens: npt.NDArray[np.int32]) -> bytes:
    """`key_i = H(key_{i-1}, tokens_i)`: 16 bytes that depend on all tokens up to this block's end.

    tokens: (block_size,), or fewer for the last block of a closed piece. Two blocks share a key
    only if everything they attend to is the same.
    """
    return hashlib.blake2b(previous + tokens.tobytes(), digest_size=16).digest()


def key_after(previous: bytes, span: bytes, position: int) -> bytes:
    """Key of a chain in which an independent span follows the part named by `previous`.

    span: the key of the span. position: of the span's first token, in the chain.
    """
    content = previous.ljust(16, b"\0") + span + position.to_bytes(8)
    return hashlib.blake2b(content, digest_size=16, person=b"span").digest()


def key_at(position: int) -> bytes:
    """Key before the first block of a span whose states are bound to a position."""
    return hashlib.blake2b(position.to_bytes(8), digest_size=16, person=b"position").digest()


def chain(
    tokens: npt.NDArray[np.int32], block_size: int, previous: bytes = ROOT
) -> Iterator[bytes]:
    """Keys of the full blocks of `tokens`, first to last; a partial last block has none."""
    for start in range(0, len(tokens) - block_size + 1, block_size):
        previous = block_key(previous, tokens[start : start + block_size])
        yield previous
