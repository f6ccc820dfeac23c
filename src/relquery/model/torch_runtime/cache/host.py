"""Keys and values in host memory, for states that the KV cache has no room for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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

    Only copies touch them, one after another. On CUDA the memory is pinned, and copies run beside
    the device's other work, on a stream of their own.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}
        self._stream: torch.cuda.Stream | None = None
        self._loaded: dict[int, torch.cuda.Event] = {}

    def save(self, layer: int, run: Run, key: Tensor, value: Tensor) -> None:
        """Copy from rows of keys and values, each (tokens, kv_heads, head_dim)."""
        if layer not in self._layers:
            self._layers[layer] = (self._like(key), self._like(value))
        with self._beside((key, value)):
            for states, rows in zip(self._layers[layer], (key, value), strict=True):
                states[run.host : run.host + run.tokens].copy_(
                    rows[run.here : run.here + run.tokens], non_blocking=True
                )

    def begin_load(self, layer: int, run: Run, target: tuple[Tensor, Tensor]) -> None:
        """Copy to slots of keys and values, each (kv_heads, slots, width)."""
        with self._beside(target):
            for states, kept in zip(target, self._layers[layer], strict=True):
                states[:, run.here : run.here + run.tokens].copy_(
                    kept[run.host : run.host + run.tokens].transpose(0, 1), non_blocking=True
                )
            if self._stream is not None:
                self._loaded[layer] = self._stream.record_event()

    def end_load(self, layer: int) -> None:
        """Let the device's next work see what was loaded of a layer."""
        event = self._loaded.pop(layer, None)
        if event is not None:
            torch.cuda.current_stream().wait_event(event)

    @contextmanager
    def _beside(self, tensors: tuple[Tensor, Tensor]) -> Iterator[None]:
        """Copies run after what the device has been told so far, but not before what follows."""
        device = tensors[0].device
        if device.type != "cuda":
            yield
            return
        if self._stream is None:
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(self._stream):
            yield
        for each in tensors:
            each.record_stream(self._stream)  # their memory is not used again before

    def _like(self, rows: Tensor) -> Tensor:
        on_cuda = rows.device.type == "cuda"
        return torch.empty(self.slots, *rows.shape[1:], dtype=rows.dtype, pin_memory=on_cuda)


def runs(host: Int64s, here: Int64s) -> Iterator[Run]:
    """The longest runs of tokens with host slots (n,) and rows or slots (n,) of the device."""
    (breaks,) = np.nonzero((np.diff(host) != 1) | (np.diff(here) != 1))
    for a, b in pairwise([0, *(breaks + 1).tolist(), len(host)]):
        if a < b:
            yield Run(int(host[a]), int(here[a]), b - a)
