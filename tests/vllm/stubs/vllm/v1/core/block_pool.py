"""Blocks: held ones, and free ones whose states can still be found."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from vllm.v1.core.kv_cache_utils import with_group


@dataclass(eq=False)
class KVCacheBlock:
    block_id: int
    ref_cnt: int = 0
    hash: bytes | None = None


@dataclass
class BlockHashToBlockMap:
    _blocks: dict[bytes, dict[int, KVCacheBlock]] = field(default_factory=dict)

    def get_one_block(self, key: bytes) -> KVCacheBlock | None:
        return next(iter(self._blocks.get(key, {}).values()), None)

    def insert(self, key: bytes, block: KVCacheBlock) -> None:
        self._blocks.setdefault(key, {})[block.block_id] = block

    def pop(self, key: bytes, block_id: int) -> KVCacheBlock | None:
        same = self._blocks.get(key, {})
        block = same.pop(block_id, None)
        if not same:
            self._blocks.pop(key, None)
        return block

    def __len__(self) -> int:
        return len(self._blocks)


class BlockPool:
    def __init__(self, count: int) -> None:
        self.num_gpu_blocks = count
        self.blocks = [KVCacheBlock(at) for at in range(count)]
        self.free = OrderedDict((block.block_id, block) for block in self.blocks)
        self.cached_block_hash_to_block = BlockHashToBlockMap()

    def get_num_free_blocks(self) -> int:
        return len(self.free)

    def get_cached_block(
        self, block_hash: bytes, kv_cache_group_ids: list[int]
    ) -> list[KVCacheBlock] | None:
        block = self.cached_block_hash_to_block.get_one_block(with_group(block_hash))
        return None if block is None else [block] * len(kv_cache_group_ids)

    def touch(self, blocks: list[KVCacheBlock]) -> None:
        for block in blocks:
            if not block.ref_cnt:
                del self.free[block.block_id]
            block.ref_cnt += 1

    def take(self, count: int) -> list[KVCacheBlock]:
        taken = [self.free.popitem(last=False)[1] for _ in range(count)]
        for block in taken:
            self.forget(block)
            block.ref_cnt = 1
        return taken

    def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock]) -> None:
        for block in ordered_blocks:
            block.ref_cnt -= 1
            assert block.ref_cnt >= 0
            if not block.ref_cnt:
                self.free[block.block_id] = block

    def reset_prefix_cache(self) -> bool:
        if len(self.free) < self.num_gpu_blocks:
            return False
        self.cached_block_hash_to_block = BlockHashToBlockMap()
        for block in self.blocks:
            block.hash = None
        return True

    def forget(self, block: KVCacheBlock) -> None:
        if block.hash is not None:
            self.cached_block_hash_to_block.pop(with_group(block.hash), block.block_id)
            block.hash = None

    def name(self, block: KVCacheBlock, block_hash: bytes) -> None:
        if block.hash is None:
            block.hash = block_hash
            self.cached_block_hash_to_block.insert(with_group(block_hash), block)
