"""Block keys: content hashes that name a block together with everything it attends to."""

from __future__ import annotations

from hashlib import blake2b

from relquery.arrays import TokenIds

ROOT = b""
"""Key before the first block of every chain."""


def chain_keys(tokens: TokenIds, block_size: int, previous: bytes) -> list[bytes]:
    """Keys of the blocks of `tokens`, first to last: `key_i = H(key_{i-1}, tokens_i)`.

    tokens: (n,); the last block may have fewer than block_size of them. previous: the key before
    the first block. A key has 16 bytes and depends on all tokens up to its block's end: two blocks
    share one only if everything they attend to is the same.
    """
    content, size, keys = tokens.tobytes(), block_size * tokens.itemsize, []
    for start in range(0, len(content), size):
        previous = blake2b(previous + content[start : start + size], digest_size=16).digest()
        keys.append(previous)
    return keys


def key_after(previous: bytes, span: bytes, position: int) -> bytes:
    """Key of a chain in which an independent span follows the part named by `previous`.

    span: the key of the span. position: of the span's first token, in the chain.
    """
    content = previous.ljust(16, b"\0") + span + position.to_bytes(8)
    return blake2b(content, digest_size=16, person=b"span").digest()


def key_at(position: int, previous: bytes = ROOT) -> bytes:
    """Key before the first block of what begins at a position that does not follow from what is
    before it: a span whose states are bound to a position, and what follows a gap."""
    content = position.to_bytes(8) + previous
    return blake2b(content, digest_size=16, person=b"position").digest()


def key_around_placeholder(previous: bytes) -> bytes:
    """Key before the first block of a placeholder, or of what follows it in its chain.

    What follows the chain does not attend to the placeholder, so where it begins and ends matters.
    """
    return blake2b(previous, digest_size=16, person=b"placeholder").digest()
