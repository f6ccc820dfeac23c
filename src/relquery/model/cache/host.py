"""Keys and values in host memory, for states that the KV cache has no room for."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from relquery.arrays import Int64s


class Run(NamedTuple):
    """Consecutive tokens: they begin at slot `host` on the host, and at row or slot `here` on
    the device."""

    host: int
    here: int
    tokens: int


class HostCache:
    """Slot-addressed keys and values, a pair of tensors per layer, created at its first save.

    Only copies touch them, in the order of the device's work: on CUDA the memory is pinned, and
    copies run asynchronously.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}

    def save(self, layer: int, run: Run, key: Tensor, value: Tensor) -> None:
        """Copy from rows of keys and values, each (tokens, kv_heads, head_dim)."""
        if layer not in self._layers:
            self._layers[layer] = (self._like(key), self._like(value))
        for states, rows in zip(self._layers[layer], (key, value), strict=True):
            states[run.host : run.host + run.tokens].copy_(
                rows[run.here : run.here + run.tokens], non_blocking=True
            )

    def load(self, layer: int, run: Run, target: tuple[Tensor, Tensor]) -> None:
        """Copy to slots of keys and values, each (kv_heads, slots, width)."""
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
