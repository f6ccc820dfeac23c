"""vLLM's blocks as the policies look them up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any


class Pool:
    """A view of vLLM's block pool; see engine.cache.blocks.BlockPool. Holds and changes nothing.

    Lookups are remembered until `begin`, because one step asks for the same blocks many times.

    blocks: vLLM's pool. groups: of the caches in which a block must be found.
    """

    def __init__(self, blocks: Any, groups: Sequence[int]) -> None:
        self._blocks, self._groups = blocks, list(groups)
        self.total = int(blocks.num_gpu_blocks)
        self.place = _Nowhere()
        self._found: dict[bytes, int | None] = {}

    def begin(self) -> None:
        """Begin a step. Forgets earlier lookups, since vLLM may have changed its pool."""
        self._found = {}

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


class _Nowhere(Sequence[int]):
    """Positions of blocks: vLLM moves none."""

    def __len__(self) -> int:
        return 0

    def __getitem__(self, at: Any) -> Any:
        return 0
