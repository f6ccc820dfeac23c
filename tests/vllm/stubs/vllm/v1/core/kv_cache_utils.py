"""Keys of blocks: a hash, and the number of the group of caches."""

from __future__ import annotations

_GROUP = bytes(4)


def get_block_hash(key: bytes) -> bytes:
    return key[: -len(_GROUP)]


def with_group(block_hash: bytes) -> bytes:
    return block_hash + _GROUP
