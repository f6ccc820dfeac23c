"""Keys and values of cached tokens, a pair of tensors per layer, and how keys are used elsewhere.

A key is stored as if its chain began at position 0. Since R(t)q · R(p+j)k = R(t-p)q · R(j)k, keys
of rotary networks can be used at another offset p by rotating the query by -p (RoFormer §3.2.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from relquery.arrays import Slots
from relquery.errors import ConfigError
from relquery.model.store import LayerStates

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
    def read(self, layer: int, slots: Slots) -> LayerStates | None:
        """The states at slots; None before the layer's first write."""
        if self._cache.stored(layer) is None:
            return None
        read = self._cache.read(layer, torch.from_numpy(slots).to(self._like.device))
        return LayerStates(*(each.cpu().contiguous().view(torch.uint8).numpy() for each in read))

    @torch.inference_mode()
    def write(self, layer: int, slots: Slots, states: LayerStates) -> None:
        """Put states at slots."""
        keys, values = (
            torch.from_numpy(np.ascontiguousarray(each))
            .view(self._like.dtype)
            .transpose(0, 1)
            .to(self._like.device)
            for each in states
        )
        self._cache.write(layer, torch.from_numpy(slots).to(self._like.device), keys, values)


class RotaryEmbedding:
    """Rotation of pairs of dimensions by position times frequency.

    frequencies: (rotary_dim / 2,) radians per token, of the leading rotary_dim dimensions; the
    others stay. interleaved: dimensions 2i and 2i+1 are a pair (GPT-J, Cohere), else i and
    i + rotary_dim/2 (Llama).
    """

    def __init__(self, frequencies: Tensor, interleaved: bool) -> None:
        self.frequencies = frequencies
        self.interleaved = interleaved
        self._tables = WeakTensorKeyDictionary()

    def rotate(self, states: Tensor, by: Tensor) -> Tensor:
        """States rotated by `by` more positions, in their own dtype.

        states: (..., tokens, heads, head_dim). by: (tokens,) integers, possibly negative,
        or anything that broadcasts to all dimensions of states but the last two. Its tables are
        cached while `by` exists, for all layers of a step, so do not change it in place. Norms do
        not change: the states already include a factor that a network applies to them (YaRN).
        """
        cos, sin = self._table(by)
        width = 2 * len(self.frequencies)
        turned = states[..., :width].float()
        if self.interleaved:
            first, second = turned[..., ::2], turned[..., 1::2]
        else:
            first, second = turned.chunk(2, dim=-1)
        pair = (first * cos - second * sin, second * cos + first * sin)
        joined = torch.stack(pair, -1).flatten(-2) if self.interleaved else torch.cat(pair, -1)
        joined = joined.to(states.dtype)
        if width == states.shape[-1]:
            return joined
        return torch.cat((joined, states[..., width:]), -1)

    def _table(self, by: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines, each (*by, 1, rotary_dim / 2) in float32."""
        if by not in self._tables:
            # Angles in float64: at position 100,000 float32 angles are off by up to 0.004. The
            # network's own angles have this error, and we should not add a second one.
            angles = (by.double().unsqueeze(-1) * self.frequencies.double()).unsqueeze(-2)
            self._tables[by] = angles.cos().float(), angles.sin().float()
        table: tuple[Tensor, Tensor] = self._tables[by]
        return table


@dataclass(frozen=True, slots=True)
class PositionScheme:
    """The way in which the keys of each layer carry their position.

    layers: by layer; None if its keys carry no position (ALiBi, NoPE). Layers with the same
    rotation share one Rotary. relocatable: whether keys can be used at other positions than they
    were computed at; if not, `layers` is meaningless.
    """

    layers: tuple[RotaryEmbedding | None, ...]
    relocatable: bool
