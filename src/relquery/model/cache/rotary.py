"""Rotation of keys and queries by any distance, and how the layers of a network use it.

A key is stored as if its chain began at position 0. Since R(t)q · R(p+j)k = R(t-p)q · R(j)k, keys
of rotary networks serve at another offset p by rotating the query by -p (RoFormer §3.2.1).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary


class Rotary:
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
        """States rotated by `by` positions more, in their own type.

        states: (..., tokens, heads, head_dim). by: (tokens,) integers, negative ones among them,
        or whatever broadcasts to all dimensions of states but the last two. Its tables are kept
        while it lives, for all layers of a step: it must not be changed in place. Lengths stay:
        a factor that a network puts on its rotated states (YaRN) is in them already.
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
            # Angles in float64: at position 100,000 those of float32 are off by up to 0.004, and
            # the network's own angles, which are, need no second error on top.
            angles = (by.double().unsqueeze(-1) * self.frequencies.double()).unsqueeze(-2)
            self._tables[by] = angles.cos().float(), angles.sin().float()
        table: tuple[Tensor, Tensor] = self._tables[by]
        return table


@dataclass(frozen=True, slots=True)
class PositionScheme:
    """How the keys of each layer carry their position.

    layers: by layer; None: its keys carry none (ALiBi, NoPE). Layers that rotate alike share one
    Rotary. relocatable: whether keys serve at other positions than where they were computed; if
    not, `layers` says nothing.
    """

    layers: tuple[Rotary | None, ...]
    relocatable: bool
