"""Keys and values of all cached tokens, one pair of tensors per layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from relquery.arrays import Slots
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
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}
        self._shared: dict[tuple[torch.Size, torch.Size], tuple[Tensor, Tensor]] = {}

    def write(self, layer: int, slots: Tensor, key: Tensor, value: Tensor) -> None:
        """Store key and value, each (tokens, kv_heads, head_dim), at `slots` (tokens,)."""
        for states, rows in zip(self.prepare(layer, key, value), (key, value), strict=True):
            states.index_copy_(1, slots, rows.transpose(0, 1))

    def prepare(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Where a layer's keys and values of these shapes go: each (kv_heads, slots, width)."""
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

    def read(self, layer: int, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values at `slots` of any shape, each (*shape, kv_heads, width)."""
        flat = slots.reshape(-1)
        keys, values = (
            states.index_select(1, flat)
            .transpose(0, 1)
            .view(*slots.shape, len(states), states.shape[2])
            for states in self._layers[layer]
        )
        return keys, values

    def read_run(self, layer: int, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values at `slots` (tokens,), each (tokens, kv_heads, width).

        Views, if the slots follow one another.
        """
        first, count = int(slots[0]), len(slots)
        if int(slots[-1]) - first != count - 1 or not bool((slots.diff() == 1).all()):
            keys, values = self.read(layer, slots[None])
        else:
            keys, values = (states[:, first : first + count] for states in self.whole(layer))
        return keys[0], values[0]

    def whole(self, layer: int) -> tuple[Tensor, Tensor]:
        """All keys and values, as views: each (1, slots, kv_heads, width)."""
        keys, values = (states.transpose(0, 1)[None] for states in self._layers[layer])
        return keys, values

    def stored(self, layer: int) -> tuple[Tensor, Tensor] | None:
        """Keys and values, each (kv_heads, slots, width); None before the layer's first write."""
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
        stored = self._cache.stored(layer)
        if stored is None:
            return None
        rows = torch.from_numpy(slots).to(self._like.device)
        keys, values = (
            each.index_select(1, rows).cpu().contiguous().view(torch.uint8).numpy()
            for each in stored
        )
        return States(keys, values)

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
