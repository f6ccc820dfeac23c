"""One step's batch as attention needs it: where keys and values go, and who computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from relquery.arrays import Int64s
from relquery.engine.executor import SCRATCH, Chunk
from relquery.model.attention_plan import is_ordered, numbered, positions_of
from relquery.model.torch_runtime.attention.bucketed import BucketedAttention
from relquery.model.torch_runtime.attention.on_cpu import KINDS, CpuAttention
from relquery.model.torch_runtime.attention.on_gpu import GpuAttention, has_triton
from relquery.model.torch_runtime.cache.device import KVCache
from relquery.model.torch_runtime.cache.host import HostCache, Run, runs
from relquery.model.torch_runtime.cache.rotary import PositionScheme, Rotate

Turn = Callable[[int, tuple[Tensor, ...]], None]


class PackedBatch:
    """Everything attention needs to know about one step; the same for every layer.

    share: see EngineConfig.segment_sharing. scheme: how keys carry their position; needed if
    spans are used at a different position than they were computed. rotate: "queries" per span, or
    "keys" when they are read. scratch: holds what is written to the step's scratch slots. turn:
    called with a layer's number when its keys and values are written, before any are read, and with
    tensors that are not needed any more; it may empty them. host: the cache that chunks load from
    and save to.

    tokens: of the packed batch. positions, slots: (tokens,), slots as chunks write to them.
    last_position: the largest.
    kernels: that compute attention; None if torch's operators do. is_ordered: whether each chunk's
    positions come after those of all that it attends to.
    """

    def __init__(
        self,
        chunks: Sequence[Chunk],
        cache: KVCache,
        share: bool,
        device: torch.device,
        scheme: PositionScheme | None = None,
        rotate: Rotate = "queries",
        scratch: KVCache | None = None,
        turn: Turn | None = None,
        host: HostCache | None = None,
    ) -> None:
        self.chunks, self.share = chunks, share
        self.device, self.scheme, self.rotate = device, scheme, rotate
        self.turn = turn
        self.cache, self.scratch, self._host = cache, scratch, host
        self._loads, self._saves = self._split_loads(chunks), _saves(chunks)
        self._begun: set[tuple[int, int]] = set()  # layers, and which loads
        self.slots = np.concatenate([chunk.writes for chunk in chunks])
        self._writes = self._split_writes(self.slots)
        self.positions = positions_of(chunks)
        self.tokens, self.last_position = len(self.positions), int(self.positions.max())
        self.is_ordered = is_ordered(chunks)
        self.kernels = self._kernels_for(chunks)

    @property
    def is_plain(self) -> bool:
        """Whether all that a layer does beside computing is to write keys and values."""
        return self.turn is None and not self._saves and not self._loads

    def _kernels_for(self, chunks: Sequence[Chunk]) -> CpuAttention | GpuAttention | None:
        kernels = kernels_of(self.device)
        if kernels is None:
            return None
        if not self.is_ordered and kernels is GpuAttention:
            chunks = numbered(chunks)
        return kernels(chunks, self.share, self.scheme, self.rotate == "keys")

    @cached_property
    def bucketed(self) -> BucketedAttention:
        """The step's attention by torch's operators."""
        return BucketedAttention(
            self.chunks,
            self.cache,
            self.scratch,
            self.share,
            self.device,
            self.scheme,
            self.rotate,
        )

    def attend(
        self,
        layer: int,
        queries: Tensor,
        *,
        scale: float,
        window: int | None = None,
        softcap: float | None = None,
        slopes: Tensor | None = None,
    ) -> Tensor:
        """Outputs (tokens, heads, value_dim) of queries (tokens, heads, head_dim), for keys and
        values that are stored."""
        options: Any = {"scale": scale, "window": window, "softcap": softcap, "slopes": slopes}
        kernels = self.kernels
        # Numbers in the place of positions tell who sees whom, but not how far away it is.
        knows_distance = self.is_ordered or (window is None and slopes is None)
        if isinstance(kernels, GpuAttention) and not knows_distance:
            kernels = None
        if kernels is None or queries.dtype not in KINDS:
            return self.bucketed.attend(layer, queries, *self._read_own(layer), **options)
        own = None if self.scratch is None else self.scratch.stored(layer)
        return kernels.attend(layer, queries, self.cache.stored(layer), own, **options)

    def write(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Store the batch's keys and values, each (tokens, kv_heads, head_dim), and exchange states
        with the host."""
        for store, rows, slots in self._writes:
            if rows is None:
                store.write(layer, slots, keys, values)
            else:
                store.write(layer, slots, keys[rows], values[rows])
        self._exchange(layer, keys, values)

    def _exchange(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Save states to the host, and fetch the layer's states from it."""
        for run in self._saves:
            assert self._host is not None, "there is no host cache to save to"
            self._host.save(layer, run, keys, values)
        if not self._loads:
            return
        assert self._host is not None
        self._begin_loads(layer, keys, values)
        # The next layer's states are on their way while this one computes.
        if self.cache.stored(layer + 1) is not None:
            self._begin_loads(layer + 1, keys, values, is_early=True)
        self._host.end_load(layer)

    def _begin_loads(
        self, layer: int, keys: Tensor, values: Tensor, *, is_early: bool = False
    ) -> None:
        """Begin those of a layer that have not begun. is_early: only those that can be."""
        assert self._host is not None
        for number, (store, run) in enumerate(self._loads):
            if (layer, number) in self._begun or (is_early and not self._is_there(store, run)):
                continue
            self._host.begin_load(layer, run, store.prepare(layer, keys, values))
            self._begun.add((layer, number))

    def _is_there(self, store: KVCache, run: Run) -> bool:
        """Whether a later layer's states can be loaded before this layer's attention: the step's
        own store still holds this layer, and what the step itself saves is not on the host yet."""
        saved = [(each.host, each.host + each.tokens) for each in self._saves]
        first, last = run.host, run.host + run.tokens
        return store is self.cache and all(last <= low or high <= first for low, high in saved)

    def _read_own(self, layer: int) -> tuple[Tensor, Tensor]:
        """What `write` has stored; a view if it is contiguous."""
        read = [store.read_run(layer, slots) for store, _, slots in self._writes]
        if len(read) == 1:
            return read[0]
        order = torch.cat([rows for _, rows, _ in self._writes if rows is not None]).argsort()
        keys, values = (torch.cat(states)[order] for states in zip(*read, strict=True))
        return keys, values

    def _split_writes(self, slots: Int64s) -> list[tuple[KVCache, Tensor | None, Tensor]]:
        """(store, rows of the packed batch or None for all, slots there) of what is written."""
        own = slots >= SCRATCH
        if not own.any():
            return [(self.cache, None, self._tensor(slots))]
        assert self.scratch is not None, "slots of the step alone need a place"
        if own.all():
            return [(self.scratch, None, self._tensor(slots - SCRATCH))]
        kept = np.flatnonzero(~own)
        return [
            (self.cache, self._tensor(kept), self._tensor(slots[kept])),
            (
                self.scratch,
                self._tensor(np.flatnonzero(own)),
                self._tensor(slots[own] - SCRATCH),
            ),
        ]

    def _split_loads(self, chunks: Sequence[Chunk]) -> list[tuple[KVCache, Run]]:
        """(store, run) of what is copied from the host."""
        loads = []
        for chunk in chunks:
            for run in runs(*chunk.loads) if chunk.loads is not None else ():
                if run.here < SCRATCH:
                    loads.append((self.cache, run))
                else:
                    assert self.scratch is not None, "slots of the step alone need a place"
                    loads.append((self.scratch, run._replace(here=run.here - SCRATCH)))
        return loads

    def _tensor(self, array: Any) -> Tensor:
        return torch.from_numpy(array).to(self.device)


def kernels_of(device: torch.device) -> type[CpuAttention] | type[GpuAttention] | None:
    """What computes attention on a device; None if torch's operators do."""
    if device.type == "cpu":
        return CpuAttention
    return GpuAttention if device.type == "cuda" and has_triton() else None


def _saves(chunks: Sequence[Chunk]) -> list[Run]:
    """What is copied to the host, by rows of the packed batch."""
    saves: list[Run] = []
    start = 0
    for chunk in chunks:
        if chunk.saves is not None:
            (rows,) = np.nonzero(chunk.saves >= 0)
            saves += runs(chunk.saves[rows], start + rows)
        start += len(chunk.tokens)
    return saves
