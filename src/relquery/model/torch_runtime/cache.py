"""Keys and values of cached tokens, a pair of tensors per layer: on a device and in host memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from relquery.arrays import Int64s, Slots
from relquery.errors import ConfigError
from relquery.model.store import States

Stored = tuple[Tensor, Tensor]
"""Keys and values of one layer in one store, each (kv_heads, slots, width)."""


class KVCache:
    """Slot-addressed keys and values. A layer's tensors are made at its first write.

    They are (kv_heads, slots, width), so that what a head reads of a run of slots is one piece.
    Keys are stored as the network returns them, rotated to their position in their chain.
    keeps: store all layers; otherwise each layer overwrites the previous one of the same width.
    """

    def __init__(self, slots: int, *, keeps: bool = True) -> None:
        self.slots, self._keeps = slots, keeps
        self._layers: dict[int, Stored] = {}
        self._shared: dict[tuple[torch.Size, torch.Size], Stored] = {}

    def write(self, layer: int, slots: Tensor, key: Tensor, value: Tensor) -> None:
        """Store key and value, each (tokens, kv_heads, head_dim), at `slots` (tokens,)."""
        for states, rows in zip(self.prepare(layer, key, value), (key, value), strict=True):
            states.index_copy_(1, slots, rows.transpose(0, 1))

    def prepare(self, layer: int, key: Tensor, value: Tensor) -> Stored:
        """Where a layer's keys and values of these shapes go."""
        if layer not in self._layers:
            if self._keeps:
                self._layers[layer] = self._like(key), self._like(value)
            else:
                # By shape: while some slices of a step read a layer, others write the next one.
                shapes = key.shape[1:], value.shape[1:]
                if shapes not in self._shared:
                    self._shared[shapes] = self._like(key), self._like(value)
                self._layers[layer] = self._shared[shapes]
        return self._layers[layer]

    def read(self, layer: int, slots: Tensor) -> Stored:
        """Keys and values at `slots` (n,), each (kv_heads, n, width)."""
        keys, values = (each.index_select(1, slots) for each in self._layers[layer])
        return keys, values

    def stored(self, layer: int) -> Stored | None:
        """All keys and values of a layer; None before its first write."""
        return self._layers.get(layer)

    def reserve(self) -> None:
        """Write to every slot without changing it, so that the system allocates all memory."""
        for states in self._layers.values():
            for each in states:
                each.mul_(1)

    @property
    def slot_bytes(self) -> int:
        """Bytes of one token, in all layers that have written so far."""
        return sum(each[:, :1].nbytes for states in self._layers.values() for each in states)

    @property
    def layers(self) -> int:
        """Layers that have written so far."""
        return len(self._layers)

    def _like(self, tensor: Tensor) -> Tensor:
        # torch.empty: the system allocates a slot's memory when it is first written.
        _, heads, width = tensor.shape
        kind: Any = {"dtype": tensor.dtype, "device": tensor.device}
        try:
            return torch.empty(heads, self.slots, width, **kind)
        except RuntimeError as error:
            raise ConfigError(
                f"There is no memory for a KV cache of {self.slots:,} tokens. Lower cache_tokens."
            ) from error


_KINDS = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


class CachedStates:
    """The states of a cache as bytes; see relquery.model.store.Cache.

    like: numbers of the network's type, on its device.
    """

    def __init__(self, cache: KVCache, layers: int, like: Tensor) -> None:
        self._cache, self._like = cache, like
        self.layers, self.kind = layers, _KINDS[like.dtype]

    @torch.inference_mode()
    def read(self, layer: int, slots: Slots) -> States | None:
        """The states at slots; None before the layer's first write."""
        if self._cache.stored(layer) is None:
            return None
        read = self._cache.read(layer, torch.from_numpy(slots).to(self._like.device))
        return States(*(each.cpu().contiguous().view(torch.uint8).numpy() for each in read))

    @torch.inference_mode()
    def write(self, layer: int, slots: Slots, states: States) -> None:
        """Put states at slots."""
        keys, values = (
            torch.from_numpy(np.ascontiguousarray(each))
            .view(self._like.dtype)
            .transpose(0, 1)
            .to(self._like.device)
            for each in states
        )
        self._cache.write(layer, torch.from_numpy(slots).to(self._like.device), keys, values)


class Run(NamedTuple):
    """Consecutive tokens."""

    host: int
    """The slot on the host where they begin."""
    here: int
    """The row or slot on the device where they begin."""
    tokens: int


class HostCache:
    """Slot-addressed keys and values in host memory, for states that the KV cache has no room for.

    A layer's tensors are made at its first save. On CUDA the memory is pinned, and the device
    copies in the order of its other work.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._layers: dict[int, Stored] = {}

    def save(self, layer: int, run: Run, key: Tensor, value: Tensor) -> None:
        """Copy from rows of keys and values, each (tokens, kv_heads, head_dim)."""
        if layer not in self._layers:
            self._layers[layer] = (self._like(key), self._like(value))
        for kept, rows in zip(self._layers[layer], (key, value), strict=True):
            kept[run.host : run.host + run.tokens].copy_(
                rows[run.here : run.here + run.tokens], non_blocking=True
            )

    def load(self, layer: int, run: Run, target: Stored) -> None:
        """Copy to slots of keys and values."""
        for states, kept in zip(target, self._layers[layer], strict=True):
            states[:, run.here : run.here + run.tokens].copy_(
                kept[run.host : run.host + run.tokens].transpose(0, 1), non_blocking=True
            )

    def _like(self, rows: Tensor) -> Tensor:
        on_cuda = rows.device.type == "cuda"
        return torch.empty(self.slots, *rows.shape[1:], dtype=rows.dtype, pin_memory=on_cuda)


def runs(host: Int64s, here: Int64s) -> Iterator[Run]:
    """The longest runs of tokens with host slots (n,) and rows or slots (n,) of the device."""
    (breaks,) = np.nonzero((np.diff(host) != 1) | (np.diff(here) != 1))
    for a, b in pairwise([0, *(breaks + 1).tolist(), len(host)]):
        if a < b:
            yield Run(int(host[a]), int(here[a]), b - a)
