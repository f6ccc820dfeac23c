"""vLLM's blocks as the policies look them up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from vllm.v1.core.kv_cache_utils import get_block_hash


class Pool:
    """A view of vLLM's block pool; see engine.cache.blocks.BlockPool. Holds no block.

    Lookups are remembered until `begin`, because one step asks for the same blocks many times.

    blocks: vLLM's pool. groups: of the caches in which a block must be found. changes: the hashes
    of blocks that have entered or left the cache up to `begin`; whoever has read them clears them.
    """

    def __init__(self, blocks: Any, groups: Sequence[int]) -> None:
        self._blocks, self._groups = blocks, list(groups)
        self.total = int(blocks.num_gpu_blocks)
        self.place = _Nowhere()
        self._found: dict[bytes, int | None] = {}
        self.changes: list[bytes] = []
        self._watch()

    def begin(self) -> None:
        """Begin a step. Forgets earlier lookups, since vLLM may have changed its pool."""
        self._found = {}
        if self._blocks.cached_block_hash_to_block is not self._cached:  # vLLM has reset its cache
            self.changes += map(get_block_hash, self._cached.keys)
            self._watch()

    def _watch(self) -> None:
        self._cached = _Watched(self._blocks.cached_block_hash_to_block, self.changes)
        self._blocks.cached_block_hash_to_block = self._cached

    @property
    def available(self) -> int:
        """Blocks that can be allocated."""
        return int(self._blocks.get_num_free_blocks())

    def lookup(self, key: bytes) -> int | None:
        """The block with a hash, or None."""
        if key not in self._found:
            blocks = self._blocks.get_cached_block(key, self._groups)
            self._found[key] = None if blocks is None else int(blocks[0].block_id)
        return self._found[key]

    def lookups(self, keys: Sequence[bytes]) -> list[int | None]:
        """What `lookup` gives for each; None for all after the first miss, which serve nobody."""
        found: list[int | None] = [None] * len(keys)
        for at, key in enumerate(keys):
            block = self.lookup(key)
            if block is None:
                break
            found[at] = block
        return found

    def unheld(self, blocks: Iterable[int]) -> set[int]:
        """Those of the blocks that no request holds."""
        own = self._blocks.blocks
        return {block for block in blocks if not own[block].ref_cnt}

    def references(self, block: int) -> int:
        """How many requests hold the block."""
        return int(self._blocks.blocks[block].ref_cnt)


class Held(Sequence[int]):
    """The blocks that a request holds, by number. blocks: vLLM's own list, which grows."""

    __slots__ = ("_blocks",)

    def __init__(self, blocks: Sequence[Any]) -> None:
        self._blocks = blocks

    def __len__(self) -> int:
        return len(self._blocks)

    def __iter__(self) -> Iterator[int]:
        return (block.block_id for block in self._blocks)

    def __getitem__(self, at: Any) -> Any:
        found = self._blocks[at]
        return [block.block_id for block in found] if isinstance(at, slice) else found.block_id


class _Watched:
    """vLLM's map of cached blocks, which here also notes what enters and leaves.

    keys: what is in it, as vLLM names it.
    """

    def __init__(self, own: Any, changes: list[bytes]) -> None:
        self._own, self._changes = own, changes
        self.keys: set[bytes] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def __len__(self) -> int:
        return len(self._own)

    def insert(self, key: bytes, block: Any) -> None:
        """Add a block."""
        self._own.insert(key, block)
        self.keys.add(key)
        self._changes.append(get_block_hash(key))

    def pop(self, key: bytes, block_id: int) -> Any:
        """Remove a block; another one with the same key stays."""
        removed = self._own.pop(key, block_id)
        if self._own.get_one_block(key) is None:
            self.keys.discard(key)
            self._changes.append(get_block_hash(key))
        return removed


class _Nowhere(Sequence[int]):
    """Positions of blocks: vLLM moves none."""

    def __len__(self) -> int:
        return 0

    def __getitem__(self, at: Any) -> Any:
        return 0
