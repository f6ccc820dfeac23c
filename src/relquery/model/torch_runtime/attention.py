"""Attention of a packed batch: the function that `transformers` networks call, where its keys and
values go, and plain attention where Triton's kernels do not compute it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface

from relquery.arrays import Int64s, Slots
from relquery.engine.executor import SCRATCH, Chunk
from relquery.errors import ModelError
from relquery.model.attention_plan import is_ordered, numbered, positions_of
from relquery.model.torch_runtime.cache import KVCache, PositionScheme
from relquery.model.torch_runtime.on_gpu import GpuAttention, has_triton

NAME = "relquery"
"""Name under which the function is registered; a network's `_attn_implementation`."""
SCORES = 1 << 22
"""The most scores that plain attention holds at once: 16 MiB of float32."""
KINDS = (torch.float32, torch.bfloat16, torch.float16)
"""Types of numbers that the kernels read and write."""
Turn = Callable[[int], None]


class PackedBatch:
    """Everything attention needs to know about one step; the same for every layer.

    share: see EngineConfig.segment_sharing. scheme: how keys carry their position; needed if
    spans are used at a different position than they were computed. scratch: holds what is written
    to the step's scratch slots. turn: called with a layer's number when its keys and values are
    written, before any are read.
    """

    def __init__(
        self,
        chunks: Sequence[Chunk],
        cache: KVCache,
        share: bool,
        device: torch.device,
        scheme: PositionScheme | None = None,
        scratch: KVCache | None = None,
        turn: Turn | None = None,
    ) -> None:
        self.chunks, self.share = chunks, share
        self.device, self.scheme, self.turn = device, scheme, turn
        self.cache, self.scratch = cache, scratch
        self.slots = np.concatenate([chunk.writes for chunk in chunks])
        """(tokens,) as chunks write to them."""
        self._writes = list(self._by_store(self.slots))
        self.positions = positions_of(chunks)
        """(tokens,) of the packed batch."""
        self.tokens = len(self.positions)
        self.is_ordered = is_ordered(chunks)
        """Whether each chunk's positions come after those of all that it attends to."""
        self.kernels: GpuAttention | None = None
        """What computes attention; None if `attend_plainly` does."""
        if (kernels := kernels_of(device)) is not None:
            by_number = chunks if self.is_ordered else numbered(chunks)
            self.kernels = kernels(by_number, share, scheme)

    @property
    def is_plain(self) -> bool:
        """Whether all that a layer does beside computing is to write keys and values."""
        return self.turn is None

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
        # Numbers in the place of positions tell who sees whom, but not how far away it is.
        knows_distance = self.is_ordered or (window is None and slopes is None)
        if self.kernels is None or not knows_distance or queries.dtype not in KINDS:
            return attend_plainly(self, layer, queries, **options)
        own = None if self.scratch is None else self.scratch.stored(layer)
        return self.kernels.attend(layer, queries, self.cache.stored(layer), own, **options)

    def write(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Store the batch's keys and values, each (tokens, kv_heads, head_dim)."""
        for store, rows, slots in self._writes:
            states = (keys, values) if rows is None else (keys[rows], values[rows])
            store.write(layer, slots, *states)

    def read(self, layer: int, slots: Slots) -> tuple[Tensor, Tensor]:
        """What is stored at slots (n,): keys and values, each (kv_heads, n, head_dim)."""
        parts = list(self._by_store(slots))
        read = [store.read(layer, part) for store, _, part in parts]
        if len(read) == 1:
            return read[0]
        order = torch.cat([rows for _, rows, _ in parts if rows is not None]).argsort()
        keys, values = (torch.cat(each, 1)[:, order] for each in zip(*read, strict=True))
        return keys, values

    def _by_store(self, slots: Slots) -> Iterator[tuple[KVCache, Tensor | None, Tensor]]:
        """(store, which of the slots it has or None for all, slots there) of the cache and of the
        step's own store."""
        own = slots >= SCRATCH
        for is_own in (False, True):
            rows = np.flatnonzero(own == is_own)
            if len(rows):
                store = self.scratch if is_own else self.cache
                assert store is not None, "slots of the step alone need a place"
                here = self.tensor(slots[rows] - SCRATCH * is_own)
                yield store, None if len(rows) == len(slots) else self.tensor(rows), here

    def tensor(self, array: Any) -> Tensor:
        """An array on the batch's device."""
        return torch.from_numpy(array).to(self.device)


def kernels_of(device: torch.device) -> type[GpuAttention] | None:
    """What computes attention on a device; None for plain attention."""
    return GpuAttention if device.type == "cuda" and has_triton() else None


def attend_plainly(
    batch: PackedBatch,
    layer: int,
    queries: Tensor,
    *,
    scale: float,
    window: int | None,
    softcap: float | None,
    slopes: Tensor | None,
) -> Tensor:
    """Outputs (tokens, heads, value_dim), chunk by chunk: for any device and type.

    Keys that are used at another position than they were computed at are rotated to it.
    """
    outputs, first = [], 0
    for chunk in batch.chunks:
        slots, position = _seen_by(chunk)
        keys, values = batch.read(layer, slots)
        keys = _turned(batch, layer, chunk, keys)
        wide = torch.promote_types(queries.dtype, torch.float32)
        keys, values = keys.to(wide), values.to(wide)
        key_at, before = batch.tensor(position), len(slots) - len(chunk.tokens)
        block = max(1, SCORES // (queries.shape[1] * len(slots)))
        for begin in range(0, len(chunk.tokens), block):
            end = min(begin + block, len(chunk.tokens))
            rows = torch.arange(begin, end, device=batch.device)
            numbers = torch.arange(len(slots), device=batch.device)
            distance = (chunk.position + rows)[:, None] - key_at
            is_seen = numbers <= before + rows[:, None]
            if window is not None:
                is_seen &= distance < window
            query = queries[first + begin : first + end].to(wide)
            grouped = query.view(len(query), len(keys), -1, query.shape[-1]).permute(1, 2, 0, 3)
            scores = grouped @ keys[:, None].mT * scale  # (kv_heads, group, queries, keys)
            if softcap is not None:
                scores = softcap * torch.tanh(scores / softcap)
            if slopes is not None:
                scores -= slopes.to(wide).view(len(keys), -1, 1, 1) * distance
            weights = scores.masked_fill_(~is_seen, -torch.inf).softmax(-1)
            outputs.append((weights @ values[:, None]).permute(2, 0, 1, 3).flatten(1, 2))
        first += len(chunk.tokens)
    return torch.cat(outputs).to(queries.dtype)


def _seen_by(chunk: Chunk) -> tuple[Slots, Int64s]:
    """All slots that a chunk reads, its own last, and their positions in its chain."""
    starts = [each.start + each.shift for each in chunk.context]
    slots = [*(each.slots for each in chunk.context), chunk.writes]
    positions = [
        start + np.arange(len(each))
        for start, each in zip([*starts, chunk.position], slots, strict=True)
    ]
    return np.concatenate(slots), np.concatenate(positions)


def _turned(batch: PackedBatch, layer: int, chunk: Chunk, keys: Tensor) -> Tensor:
    """Keys (kv_heads, n, head_dim) that a chunk reads, at the positions where it uses them."""
    if not any(each.shift for each in chunk.context):
        return keys
    if batch.scheme is None or not batch.scheme.relocatable:
        raise ModelError("This network's keys cannot be used at another position.")
    rotary = batch.scheme.layers[layer]
    if rotary is None:
        return keys
    sizes = [len(each.slots) for each in chunk.context]
    shifts = np.repeat([each.shift for each in chunk.context], sizes)
    shifts = np.concatenate((shifts, np.zeros(len(chunk.tokens), np.int64)))
    return rotary.rotate(keys.transpose(0, 1), batch.tensor(shifts)).transpose(0, 1)


@dataclass(frozen=True, slots=True)
class Watched:
    """A record of what networks asked of our attention function."""

    asked: set[int] = field(default_factory=set)
    """Sizes of sliding windows and the like, in tokens, for which a network wanted a mask."""
    used: set[int] = field(default_factory=set)
    """Those that it then told its attention function."""


_watching: ContextVar[Watched | None] = ContextVar("watching", default=None)


@contextmanager
def watch_calls() -> Iterator[Watched]:
    """What the networks that run meanwhile, in this thread, ask of our attention function."""
    watched = Watched()
    before = _watching.set(watched)
    try:
        yield watched
    finally:
        _watching.reset(before)


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    batch: PackedBatch | None = None,
    alibi: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of a packed batch, as `AttentionInterface` asks for.

    query: (1, heads, tokens, head_dim); key, value: (1, kv_heads, tokens, head_dim). alibi:
    (heads,) slopes, by which scores fall with the distance. Writes keys and values to the batch's
    cache. Returns (1, tokens, heads, head_dim).
    """
    if batch is None:
        raise ModelError(
            "This network does not hand the batch on to its attention function, so it cannot run "
            "on the local engine. Use another model, or a server."
        )
    if kwargs.get("s_aux") is not None:
        raise ModelError("Networks with attention sinks are not supported by the local engine.")
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    if sliding_window is not None and (watched := _watching.get()) is not None:
        watched.used.add(sliding_window)
    queries, keys, values = (t[0].transpose(0, 1) for t in (query, key, value))
    batch.write(layer, keys, values)
    if batch.turn is not None:
        batch.turn(layer)
    outputs = batch.attend(
        layer,
        queries,
        scale=scale,
        window=sliding_window,
        softcap=softcap,
        slopes=alibi,
    )
    return outputs.unsqueeze(0), None


def _no_mask(*args: Any, local_size: int | None = None, **kwargs: Any) -> None:
    """The batch says what attends to what; a network need not build a mask."""
    if local_size is not None and (watched := _watching.get()) is not None:
        watched.asked.add(local_size)


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, _no_mask)
