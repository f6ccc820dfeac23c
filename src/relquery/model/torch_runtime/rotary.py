"""Rotation of keys and queries by any distance, and how the layers of a network use it.

A key is stored as if its chain began at position 0. Since R(t)q · R(p+j)k = R(t-p)q · R(j)k, keys
of rotary networks can be used at another offset p by rotating the query by -p (RoFormer §3.2.1).
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
    """How the keys of each layer carry their position.

    layers: by layer; None if its keys carry no position (ALiBi, NoPE). Layers with the same
    rotation share one Rotary. relocatable: whether keys can be used at other positions than they
    were computed at; if not, `layers` is meaningless.
    """

    layers: tuple[Rotary | None, ...]
    relocatable: bool
