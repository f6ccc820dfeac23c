"""A second cache in host memory, for states that the KV cache has no room for (paper 004, §9).

It stores everything that is computed of a prompt, even what the KV cache still holds: without the
beginning of a prompt the rest could not be found.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relquery.arrays import Slots
from relquery.config import EngineConfig
from relquery.engine.cache.blocks import BlockPool, slots_of
from relquery.engine.executor import Loads
from relquery.engine.request.request import Request
from relquery.engine.scheduling.plan import Work


class Offload:
    """The host's blocks that a step reads or writes: they are held until it has ended.

    No host block is held between steps, because requests that use them begin and end in one step.
    """

    def __init__(self, host: BlockPool, limits: EngineConfig) -> None:
        self._host, self._size = host, limits.block_size
        self._on = host.total > 0 and limits.prefix_caching
        self._loaded: dict[Request, list[int]] = {}
        self._held: list[int] = []
        self._fresh: list[int] = []

    def hold(self, plan: Sequence[Work]) -> None:
        """Hold the blocks that a step will load, because saving others might evict them."""
        for work in plan:
            if work.loaded:
                first = sum(work.hits)
                keys = work.request.keys(0, first + work.loaded, self._size)[first:]
                self._loaded[work.request] = [self._take(key) for key in keys]

    def loads(self, work: Work, slots: Slots) -> Loads | None:
        """What has to be copied to these slots before the work attends to them."""
        return (
            Loads(slots_of(self._loaded[work.request], self._size), slots) if work.loaded else None
        )

    def saves(self, work: Work, start: int) -> Slots | None:
        """Host slots (tokens,) for the tokens that work computes from `start` on, -1 for none. Only
        full blocks that the host does not have get slots, in order, as far as there is room. They
        can be found by their keys from now on.
        """
        if work.kept is None or not self._on or work.request.alone:
            return None
        request, size = work.request, self._size
        found = np.full(work.tokens, -1, np.int64)
        for number, key in enumerate(request.keys(0, request.length // size, size)):
            if self._host.lookup(key) is not None:
                # Held, because later blocks might otherwise evict earlier ones.
                self._held.append(self._take(key))
                continue
            if number * size < start:  # only the KV cache has it
                continue
            fresh = self._host.allocate(1)
            if fresh is None:
                break
            self._host.publish(key, fresh[0])
            self._held += fresh
            self._fresh += fresh
            at = number * size - start
            found[at : at + size] = slots_of(fresh, self._size)
        return found if (found >= 0).any() else None

    def blocks(self, request: Request) -> int:
        """How many blocks the step loads for a request."""
        return len(self._loaded.get(request, ()))

    def withdraw(self) -> None:
        """Withdraw the keys of blocks that a failed step should have saved."""
        for block in self._fresh:
            self._host.withdraw(block)

    def release(self) -> None:
        """Release all blocks that the step held."""
        for blocks in self._loaded.values():  # all are in `_held`, in prompt order
            self._host.release(blocks)
        self._host.release(self._held)
        self._loaded, self._held, self._fresh = {}, [], []

    def _take(self, key: bytes) -> int:
        block = self._host.lookup(key)
        assert block is not None, "the policy counted on a block that the host does not have"
        self._host.take(block)
        return block
