"""Rotary position embeddings, and those that this process has made."""

from __future__ import annotations

from typing import Any

import torch

_ROPE_DICT: dict[tuple[Any, ...], RotaryEmbedding] = {}


class RotaryEmbedding:
    def __init__(
        self, rotary_dim: int, positions: int, base: float, is_neox_style: bool, scale: float = 1.0
    ) -> None:
        self.rotary_dim, self.positions, self.base = rotary_dim, positions, base
        self.is_neox_style, self.scale = is_neox_style, scale

    def _compute_cos_sin_cache(self) -> torch.Tensor:
        steps = torch.arange(0, self.rotary_dim, 2, dtype=torch.float) / self.rotary_dim
        angles = torch.arange(self.positions).float()[:, None] / self.base**steps
        return self.scale * torch.cat((angles.cos(), angles.sin()), -1)
