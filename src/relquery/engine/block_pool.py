"""The block pool: which blocks of the KV cache are held, and which may be reused."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from math import inf

import numpy as np

from relquery.arrays import Slots
from relquery.engine.requests.pieces import Keep


def slots_of(blocks: Sequence[int], block_size: int) -> Slots:
    """(blocks x block_size,) slots of all tokens in some blocks."""
    first = np.array(blocks, np.int64)[:, None] * block_size
    return (first + np.arange(block_size)).reshape(-1)


class Kept:
    """Cached blocks by how long they stay, and of these those first that were released first.

    most: of them. now: tells the time in seconds.
    """

    def __init__(self, most: int, now: Callable[[], float]) -> None:
        self._most, self._now = most, now
        self._cached: dict[Keep, OrderedDict[int, float]] = {}  # the values: when released
        self.levels: dict[int, Keep] = {}
        """How long each kept block stays, held ones included."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self._cached.values())

    def add(self, block: int) -> list[int]:
        """Add a released block that has a level; returns those that are too many now."""
        level = self.levels[block]
        cached = self._cached.get(level)
        if cached is None:
            cached = self._cached[level] = OrderedDict()
        cached[block] = self._now()
        self._count += 1
        if self._count <= self._most:
            return []
        return [*self.expire(), *self.take(self._count - self._most)]

    def remove(self, block: int) -> None:
        """Remove a block that is taken. It keeps its level."""
        level = self.levels[block]
        del self._cached[level][block]
        if not self._cached[level]:
            del self._cached[level]
        self._count -= 1

    def expire(self) -> list[int]:
        """Remove the blocks whose time has passed, and their levels."""
        expired: list[int] = []
        for level in [each for each in self._cached if each.seconds < inf]:
            oldest = self._now() - level.seconds
            for block, released in self._cached[level].items():
                if released > oldest:
                    break
                expired.append(block)
        for block in expired:
            self._drop(block)
        return expired

    def take(self, count: int) -> list[int]:
        """Remove up to `count` blocks and their levels, the oldest of the lowest level first."""
        taken: list[int] = []
        while len(taken) < count and self._cached:
            block = next(iter(self._cached[min(self._cached)]))
            self._drop(block)
            taken.append(block)
        return taken

    def _drop(self, block: int) -> None:
        self.remove(block)
        del self.levels[block]


class BlockPool:
    """Reference-counted blocks with prefix lookup by key and least-recently-used eviction.

    A block is *held* (references > 0), *cached* (not held, but its key can still be found) or
    *free* (no key). Cached blocks are evicted, least recently released first, when no free block
    is left, and those that are *kept* only when no others are. At all times
    `free + cached + held == total`; `check()` verifies it.

    most_kept: blocks that are kept at once; the least recently used of the lowest level become
    ordinary ones. None for half of all. now: tells the time in seconds, for blocks that are kept
    for some time.
    """

    def __init__(
        self, total: int, most_kept: int | None = None, now: Callable[[], float] = float
    ) -> None:
        self.total = total
        self._kept = Kept(total // 2 if most_kept is None else most_kept, now)
        self._references = [0] * total
        self._key_of: list[bytes | None] = [None] * total
        self._block_of: dict[bytes, int] = {}
        self._free = list(range(total - 1, -1, -1))
        self._cached: OrderedDict[int, int] = OrderedDict()  # the values are 1
        self.changes: list[bytes] = []
        """Keys that became findable or no longer findable; the engine empties it each step."""

    @property
    def available(self) -> int:
        """Blocks that `allocate` can use: free and cached ones."""
        return len(self._free) + len(self._cached) + len(self._kept)

    @property
    def cached(self) -> int:
        """Blocks that nobody holds, but whose states can be found."""
        return len(self._cached) + len(self._kept)

    @property
    def kept(self) -> int:
        """Cached blocks that are kept while others can be evicted."""
        return len(self._kept)

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
            if references[block] == 0 and cached.pop(block, 0) == 0:
                self._kept.remove(block)
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
        self.publish_all((key,), (block,))

    def publish_all(self, keys: Iterable[bytes], blocks: Iterable[int]) -> None:
        """Make held blocks findable by their keys."""
        block_of, key_of, changes = self._block_of, self._key_of, self.changes
        for key, block in zip(keys, blocks, strict=True):
            if key not in block_of and key_of[block] is None:
                block_of[key] = block
                key_of[block] = key
                changes.append(key)

    def withdraw(self, block: int) -> None:
        """Forget a held block's key, if it has one: its content was never computed."""
        key = self._key_of[block]
        if key is not None:
            del self._block_of[key]
            self._key_of[block] = None
            self._kept.levels.pop(block, None)
            self.changes.append(key)

    def forget(self, keys: Iterable[bytes]) -> None:
        """Let nobody find blocks by these keys any more. Those that nobody holds become free."""
        for key in keys:
            block = self._block_of.get(key)
            if block is None:
                continue
            if self._references[block] == 0:
                if self._cached.pop(block, 0) == 0:
                    self._kept.remove(block)
                self._free.append(block)
            self.withdraw(block)

    def release(self, blocks: Sequence[int]) -> None:
        """Release one reference to each block of a request, given first to last.

        Later blocks become the first to be evicted: a prefix is worth more than what follows it.
        """
        references, key_of, cached = self._references, self._key_of, self._cached
        levels = self._kept.levels
        for block in reversed(blocks):
            references[block] -= 1
            if references[block] == 0:
                if key_of[block] is None:
                    self._free.append(block)
                elif levels and block in levels:
                    for dropped in self._kept.add(block):
                        cached[dropped] = 1
                else:
                    cached[block] = 1

    def keep(self, blocks: Iterable[int], level: Keep) -> None:
        """From now on, evict these held blocks only after all that have a lower level or none.

        A block that nobody has held for the level's seconds, or whose key is forgotten, loses it.
        """
        levels = self._kept.levels
        for block in blocks:
            if self._key_of[block] is not None:
                levels[block] = max(level, levels.get(block, level))

    def evict(self, count: int) -> int:
        """Drop up to `count` cached blocks, least recently used first; returns how many."""
        cached, key_of, block_of = self._cached, self._key_of, self._block_of
        for block in reversed(self._kept.expire()):  # few were released before them
            cached[block] = 1
            cached.move_to_end(block, last=False)
        dropped = list(islice(cached, count))
        for block in dropped:
            del cached[block]
        dropped += self._kept.take(count - len(dropped))
        for block in dropped:
            key = key_of[block]
            assert key is not None, "a cached block has a key"
            del block_of[key]
            key_of[block] = None
            self.changes.append(key)
        self._free += dropped
        return len(dropped)

    def check(self) -> None:
        """Verify the pool's invariants. Raises AssertionError on a leak or a dangling key."""
        free, cached = set(self._free), {*self._cached, *self._kept}
        assert len(cached) == len(self._cached) + len(self._kept), "a kept block is cached twice"
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
