"""The block pool: which blocks of the KV cache are held, and which may be reused."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import islice


class BlockPool:
    """Reference-counted blocks with prefix lookup by key and least-recently-used eviction.

    A block is *held* (references > 0), *cached* (not held, but its key can still be found) or
    *free* (no key). Cached blocks are evicted, least recently released first, when no free block
    is left. At all times `free + cached + held == total`; `check()` verifies it.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self._references = [0] * total
        self._key_of: list[bytes | None] = [None] * total
        self._block_of: dict[bytes, int] = {}
        self._free = list(range(total - 1, -1, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()
        self.place = [0] * total
        """Position of each block's first token, as its states are now. Kept by the engine."""
        self.changes: list[bytes] = []
        """Keys that became findable or no longer findable; the engine empties it each step."""

    @property
    def available(self) -> int:
        """Blocks that `allocate` can use: free and cached ones."""
        return len(self._free) + len(self._cached)

    @property
    def held(self) -> int:
        """Blocks that at least one request holds."""
        return self.total - self.available

    def lookup(self, key: bytes) -> int | None:
        """Block that holds the states named by `key`, or None. Holds nothing."""
        return self._block_of.get(key)

    def lookups(self, keys: Sequence[bytes]) -> list[int | None]:
        """What `lookup` gives for each key."""
        return list(map(self._block_of.get, keys))

    def unheld(self, blocks: Iterable[int]) -> set[int]:
        """Those of the blocks that no request holds."""
        references = self._references
        return {block for block in blocks if not references[block]}

    def references(self, block: int) -> int:
        """How many requests hold the block; taking it at 0 uses up an available one."""
        return self._references[block]

    def take(self, block: int) -> None:
        """Hold a block found by `lookup`."""
        self.take_all((block,))

    def take_all(self, blocks: Iterable[int]) -> None:
        """Hold blocks found by `lookups`."""
        references, cached = self._references, self._cached
        for block in blocks:
            if references[block] == 0:
                del cached[block]
            references[block] += 1

    def allocate(self, count: int) -> list[int] | None:
        """Hold `count` fresh blocks, evicting cached ones if needed; None if too few are left."""
        if count > self.available:
            return None
        if len(self._free) < count:
            self.evict(count - len(self._free))
        blocks = self._free[len(self._free) - count :][::-1]
        del self._free[len(self._free) - count :]
        for block in blocks:
            self._references[block] = 1
        return blocks

    def publish(self, key: bytes, block: int) -> None:
        """Make a held block findable by its key. The first block with a key stays."""
        self.publish_all((key,), (block,), (self.place[block],))

    def publish_all(
        self, keys: Iterable[bytes], blocks: Iterable[int], places: Iterable[int]
    ) -> None:
        """Make held blocks findable by their keys, and note where they are; see `place`."""
        block_of, key_of, place_of, changes = (
            self._block_of,
            self._key_of,
            self.place,
            self.changes,
        )
        for key, block, place in zip(keys, blocks, places, strict=True):
            place_of[block] = place
            if key not in block_of and key_of[block] is None:
                block_of[key] = block
                key_of[block] = key
                changes.append(key)

    def withdraw(self, block: int) -> None:
        """Forget a held block's key if its content was never computed."""
        key = self._key_of[block]
        if key is not None:
            del self._block_of[key]
            self._key_of[block] = None
            self.changes.append(key)

    def release(self, blocks: Sequence[int]) -> None:
        """Release one reference to each block of a request, given first to last.

        Later blocks become the first to be evicted: a prefix is worth more than what follows it.
        """
        references, key_of, cached = self._references, self._key_of, self._cached
        for block in reversed(blocks):
            references[block] -= 1
            if references[block] == 0:
                if key_of[block] is None:
                    self._free.append(block)
                else:
                    cached[block] = None

    def evict(self, count: int) -> int:
        """Drop up to `count` cached blocks, least recently used first; returns how many."""
        dropped = list(islice(self._cached, count))
        cached, key_of, block_of = self._cached, self._key_of, self._block_of
        for block in dropped:
            key = key_of[block]
            assert key is not None, "a cached block has a key"
            del cached[block], block_of[key]
            key_of[block] = None
            self.changes.append(key)
        self._free += dropped
        return len(dropped)

    def check(self) -> None:
        """Verify the pool's invariants. Raises AssertionError on a leak or a dangling key."""
        free, cached = set(self._free), set(self._cached)
        held = {block for block, count in enumerate(self._references) if count > 0}
        assert len(free) == len(self._free), "a block is free twice"
        assert free.isdisjoint(cached | held), "a free block is also cached or held"
        assert cached.isdisjoint(held), "a cached block is also held"
        assert len(free) + len(cached) + len(held) == self.total, "a block leaked"
        assert all(count >= 0 for count in self._references), "a block was released twice"
        assert all(self._key_of[block] is None for block in free), "a free block has a key"
        assert all(self._key_of[block] is not None for block in cached), "a cached block has none"
        keyed = {key: block for block, key in enumerate(self._key_of) if key is not None}
        assert keyed == self._block_of, "keys and blocks disagree"
