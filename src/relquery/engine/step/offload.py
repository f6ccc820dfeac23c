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
from relquery.engine.scheduling.reuse import offloads


class Offload:
    """The host's blocks that a step reads or writes: they are held until it has ended.

    No host block is held between steps, because requests that use them begin and end in one step.
    """

    def __init__(self, host: BlockPool, limits: EngineConfig) -> None:
        self._host, self._size = host, limits.block_size
        self._limits = limits
        self._loaded: dict[Request, list[list[int]]] = {}
        self._held: list[int] = []
        self._fresh: list[int] = []

    def hold(self, plan: Sequence[Work]) -> None:
        """Hold the blocks that a step will load, because saving others might evict them."""
        for work in plan:
            if any(work.loaded):
                loaded = self._loaded[work.request] = []
                for index, (first, count) in enumerate(zip(work.hits, work.loaded, strict=True)):
                    keys = work.request.keys(index, first + count, self._size)[first:]
                    loaded.append([self._take(key) for key in keys])

    def loads(self, work: Work) -> Loads | None:
        """What has to be copied to the slots of a request before it attends to them."""
        if work.request not in self._loaded:
            return None
        host, slots = [], []
        for index, blocks in enumerate(self._loaded[work.request]):
            first = work.hits[index] * self._size
            here = work.request.pieces[index].slots[first : first + len(blocks) * self._size]
            here = here[: work.request.size(index) - first]
            host.append(slots_of(blocks, self._size)[: len(here)])
            slots.append(here)
        return Loads(np.concatenate(host), np.concatenate(slots))

    def saves(self, work: Work, index: int, start: int, stop: int) -> Slots | None:
        """Host slots (tokens,) for the tokens of a piece that work computes, -1 for none. Only
        named blocks that the host does not have get slots, in order, as far as there is room. They
        can be found by their keys from now on.
        """
        request, size = work.request, self._size
        if work.kept is None or not offloads(request, self._limits, self._host):
            return None
        found = np.full(stop - start, -1, np.int64)
        for number, key in enumerate(request.keys(index, request.named_blocks(index, size), size)):
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
            found[at : at + size] = slots_of(fresh, size)[: len(found) - at]
        return found if (found >= 0).any() else None

    def blocks(self, request: Request, index: int) -> int:
        """How many blocks the step loads for a piece of a request."""
        return len(self._loaded[request][index]) if request in self._loaded else 0

    def withdraw(self) -> None:
        """Withdraw the keys of blocks that a failed step should have saved."""
        for block in self._fresh:
            self._host.withdraw(block)

    def release(self) -> None:
        """Release all blocks that the step held."""
        for pieces in self._loaded.values():
            for blocks in pieces:  # those of a piece that is computed, too, are in `_held`
                self._host.release(blocks)
        self._host.release(self._held)
        self._loaded, self._held, self._fresh = {}, [], []

    def _take(self, key: bytes) -> int:
        block = self._host.lookup(key)
        assert block is not None, "the policy counted on a block that the host does not have"
        self._host.take(block)
        return block
