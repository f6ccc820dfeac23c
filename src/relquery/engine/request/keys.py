"""Block keys: content hashes that name a block together with everything it attends to."""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from relquery.arrays import TokenIds

ROOT = b""
"""Key before the first block of every chain."""


class _Named(NamedTuple):
    """Blocks whose keys were computed: bytes of their tokens and of a block, and the key before."""

    content: bytes
    size: int
    previous: bytes
    keys: tuple[bytes, ...]


_latest = [_Named(b"", 0, ROOT, ())]
"""The latest of them alone. Prompts in a good order begin as the one before does, and comparing
takes a tenth of hashing."""


def chain_keys(tokens: TokenIds, block_size: int, previous: bytes) -> list[bytes]:
    """Keys of the blocks of `tokens`, first to last: `key_i = H(key_{i-1}, tokens_i)`.

    tokens: (n,); the last block may have fewer than block_size of them. previous: the key before
    the first block. A key has 16 bytes and depends on all tokens up to its block's end: two blocks
    share one only if everything they attend to is the same.
    """
    content, size = tokens.tobytes(), block_size * tokens.itemsize
    keys: list[bytes] = []
    known = _latest[0]
    if known.size == size and known.previous == previous:
        keys += known.keys[: _common(known.content, content) // size]
    key = keys[-1] if keys else previous
    for start in range(len(keys) * size, len(content), size):
        key = blake2b(key + content[start : start + size], digest_size=16).digest()
        keys.append(key)
    if len(keys) > 1:  # not while a request decodes
        _latest[0] = _Named(content, size, previous, tuple(keys))
    return keys


def _common(one: bytes, other: bytes) -> int:
    """How many bytes are the same at the beginning of both."""
    length = min(len(one), len(other))
    same = np.frombuffer(one, np.uint8, length) == np.frombuffer(other, np.uint8, length)
    return length if same.all() else int(same.argmin())


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


def key_of_owner(tenant: str) -> bytes:
    """The key of a tenant, which the keys of its own chains depend on."""
    content = tenant.encode(errors="surrogatepass")
    return blake2b(content, digest_size=16, person=b"owner").digest()


def key_owned(owner: bytes, previous: bytes) -> bytes:
    """Key before the first block of a chain that only one tenant may reuse. previous: the key that
    the chain would have if all could."""
    return blake2b(owner + previous, digest_size=16, person=b"owned").digest()
