"""One step's batch as attention needs it: buckets on the device, masks, and results to merge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from relquery.arrays import Int64s
from relquery.engine.executor import SCRATCH, Chunk
from relquery.errors import ModelError
from relquery.model.attention.buckets import Bucket, plan_buckets
from relquery.model.cache.device import KVCache
from relquery.model.cache.host import HostCache, Run, runs
from relquery.model.cache.rotary import PositionScheme

Rotate = Literal["queries", "keys"]
Turn = Callable[[int, Tensor, Tensor], None]


@dataclass(slots=True)
class DeviceBucket:
    """A bucket as tensors.

    rows: the real rows of its padded output, None for all. start: the first of its queries if they
    are contiguous, so that a view is enough; else None.
    tokens: (real rows,) the token of each in the packed batch. merging: (real rows,) its number
    among the tokens whose partial results are merged; None if only this bucket has results.
    turn: by how many positions to rotate queries, (jobs, q), or keys, (jobs, k); None for none.
    """

    bucket: Bucket
    queries: Tensor
    keys: Tensor
    rows: Tensor | None
    start: int | None
    tokens: Tensor
    merging: Tensor | None
    turn: Tensor | None
    masks: dict[int | None, Tensor | None] = field(default_factory=dict)


class PackedBatch:
    """Everything attention needs to know about one step; the same for every layer.

    share: see EngineConfig.segment_sharing. scheme: how keys carry their position; needed if
    spans are used at a different position than they were computed. rotate: "queries" per span, or
    "keys" when they are read. scratch: holds what is written to the step's scratch slots. turn:
    called with a layer's number, keys and values when these are written, before any are read; it
    may empty them. host: the cache that chunks load from and save to.

    tokens: of the packed batch. merged: those with several partial results. in_pairs: whether
    each of these has two, from two buckets that contain them all in order.
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
        self.device, self.scheme, self.rotate = device, scheme, rotate
        self.turn = turn
        self._cache, self._scratch, self._host = cache, scratch, host
        self._loads, self._saves = self._split_loads(chunks), _saves(chunks)
        self._writes = self._split_writes(np.concatenate([chunk.writes for chunk in chunks]))
        self.positions = np.concatenate(
            [np.arange(c.position, c.position + len(c.tokens)) for c in chunks]
        )
        self.tokens = len(self.positions)
        buckets = plan_buckets(chunks, share, by_shift=rotate == "keys")
        partials = np.zeros(self.tokens, dtype=np.int64)
        for bucket in buckets:
            np.add.at(partials, bucket.queries[_real(bucket)], 1)
        # All tokens of a bucket are merged if one is.
        for bucket in buckets:
            own = bucket.queries[_real(bucket)]
            if (partials[own] > 1).any():
                partials[own] = np.maximum(partials[own], 2)
        merged = np.flatnonzero(partials > 1)
        self.merged = self._tensor(merged)
        self.buckets = [self._to_device(bucket, merged) for bucket in buckets]
        merging = [item.merging for item in self.buckets if item.merging is not None]
        self.in_pairs = len(merging) == 2 and all(len(each) == len(merged) for each in merging)
        self.in_pairs = self.in_pairs and all(_is_run(each.cpu().numpy()) for each in merging)

    def write(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Store the batch's keys and values, each (tokens, kv_heads, head_dim), and fetch the
        layer's states from the host."""
        for store, rows, slots in self._writes:
            if rows is None:
                store.write(layer, slots, keys, values)
            else:
                store.write(layer, slots, keys[rows], values[rows])
        for run in self._saves:
            assert self._host is not None, "there is no host cache to save to"
            self._host.save(layer, run, keys, values)
        for store, run in self._loads:
            assert self._host is not None
            self._host.load(layer, run, store.prepare(layer, keys, values))

    def read_own(self, layer: int) -> tuple[Tensor, Tensor]:
        """What `write` has stored; a view if it is contiguous."""
        read = [store.read_run(layer, slots) for store, _, slots in self._writes]
        if len(read) == 1:
            return read[0]
        order = torch.cat([rows for _, rows, _ in self._writes if rows is not None]).argsort()
        keys, values = (torch.cat(states)[order] for states in zip(*read, strict=True))
        return keys, values

    def store(self, bucket: Bucket) -> KVCache:
        """Where the keys of a bucket are."""
        if not bucket.scratch:
            return self._cache
        assert self._scratch is not None
        return self._scratch

    def turned(self, layer: int, states: Tensor, turn: Tensor | None) -> Tensor:
        """States (jobs, n, heads, head_dim), rotated to where they are used."""
        if turn is None:
            return states
        assert self.scheme is not None
        rotary = self.scheme.layers[layer]
        return states if rotary is None else rotary.rotate(states, turn)

    def mask(self, item: DeviceBucket, window: int | None) -> Tensor | None:
        """Additive mask of a bucket under a sliding window; None if nothing is hidden."""
        if window not in item.masks:
            visible = self._visible(item.bucket, window)
            item.masks[window] = None
            if visible is not None:
                mask = torch.zeros(visible.shape, device=self.device)
                mask.masked_fill_(~self._tensor(visible), -torch.inf)
                item.masks[window] = mask.unsqueeze(1)
        return item.masks[window]

    def with_distance(
        self, item: DeviceBucket, mask: Tensor | None, slopes: Tensor
    ) -> tuple[Tensor, Tensor]:
        """ALiBi: (mask (jobs, heads, q or 1, k), correction of log-sum-exps (jobs, heads, q)).

        A score falls by slope x (position of the query - position of the key). The mask counts
        from the last key of the job, so that all queries share one; the rest is the same for all
        keys of a query, and matters only where partial results are merged.
        """
        positions = self._tensor(item.bucket.positions)
        last = positions.amax(-1)
        falls = (positions - last[:, None])[:, None] * slopes[None, :, None]
        bias = falls[:, :, None].float()
        at = self._tensor(item.bucket.at)
        offset = (last[:, None] - at)[:, None] * slopes[None, :, None]
        return bias if mask is None else mask + bias, offset.float()

    def _visible(self, bucket: Bucket, window: int | None) -> Any:
        """(jobs, q or 1, k) booleans, or None if everything is visible apart from causality."""
        width = bucket.positions.shape[1]
        columns = np.arange(width)
        # Of jobs that are read in place, each is cut to its own keys.
        counts = width if bucket.in_place else bucket.key_counts[:, None, None]
        within = columns[None, None, :] < counts
        if window is not None and int(bucket.at.max() - bucket.positions.min()) >= window:
            near = bucket.at[:, :, None] - bucket.positions[:, None, :] < window
            near |= ~_real(bucket)[:, :, None]  # a padded query may see anything
            if bucket.causal:
                near &= np.tri(width, dtype=bool)[None]
            if not near.all():
                return within & near
        return None if bucket.causal or within.all() else within

    def _to_device(self, bucket: Bucket, merged: Int64s) -> DeviceBucket:
        real = _real(bucket).reshape(-1)
        tokens = bucket.queries.reshape(-1)[real]
        merging = np.searchsorted(merged, tokens)
        merges = len(merged) > 0 and np.array_equal(
            merged[merging.clip(max=len(merged) - 1)], tokens
        )
        return DeviceBucket(
            bucket,
            self._tensor(bucket.queries),
            self._tensor(bucket.keys),
            rows=None if real.all() else self._tensor(np.flatnonzero(real)),
            start=int(tokens[0]) if real.all() and _is_run(tokens) else None,
            tokens=self._tensor(tokens),
            merging=self._tensor(np.searchsorted(merged, tokens)) if merges else None,
            turn=self._turn(bucket),
        )

    def _turn(self, bucket: Bucket) -> Tensor | None:
        if not bucket.shifted:
            return None
        if self.scheme is None or not self.scheme.relocatable:
            raise ModelError("This network's keys cannot be used at another position.")
        if self.rotate == "queries":
            return self._tensor(-bucket.shifts)
        # One shift per job: only chunks that see a span at the same position share it.
        return self._tensor(bucket.shifts[:, :1].repeat(bucket.positions.shape[1], axis=1))

    def _split_writes(self, slots: Int64s) -> list[tuple[KVCache, Tensor | None, Tensor]]:
        """(store, rows of the packed batch or None for all, slots there) of what is written."""
        own = slots >= SCRATCH
        if not own.any():
            return [(self._cache, None, self._tensor(slots))]
        assert self._scratch is not None, "slots of the step alone need a place"
        if own.all():
            return [(self._scratch, None, self._tensor(slots - SCRATCH))]
        kept = np.flatnonzero(~own)
        return [
            (self._cache, self._tensor(kept), self._tensor(slots[kept])),
            (
                self._scratch,
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
                    loads.append((self._cache, run))
                else:
                    assert self._scratch is not None, "slots of the step alone need a place"
                    loads.append((self._scratch, run._replace(here=run.here - SCRATCH)))
        return loads

    def _tensor(self, array: Any) -> Tensor:
        return torch.from_numpy(array).to(self.device)


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


def _is_run(numbers: Int64s) -> bool:
    return bool((np.diff(numbers) == 1).all())


def _real(bucket: Bucket) -> Any:
    return np.arange(bucket.queries.shape[1])[None, :] < bucket.query_counts[:, None]
