"""The blocks of a request."""

from __future__ import annotations

from dataclasses import dataclass

from vllm.v1.core.block_pool import KVCacheBlock


@dataclass
class KVCacheBlocks:
    blocks: tuple[list[KVCacheBlock], ...]

    def get_block_ids(self) -> tuple[list[int], ...]:
        return tuple([block.block_id for block in group] for group in self.blocks)
