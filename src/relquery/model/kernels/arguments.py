"""Tensors and numbers as arguments of kernels."""

from __future__ import annotations

import struct
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from relquery.arrays import Int64s

KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
"""Types of numbers that kernels read and write; see native/kernels/arguments.hpp."""
LANES = 16
"""A multiple of these is what widths are padded to."""

Stored = tuple[Tensor, Tensor]
"""Keys and values of one layer in one store, each (kv_heads, slots, width)."""


class Arguments:
    """int64 arguments of a kernel, by number."""

    __slots__ = ("numbers", "place")

    def __init__(self, count: int) -> None:
        self.numbers: Int64s = np.zeros(count, dtype=np.int64)
        self.place = self.numbers.ctypes.data

    def __getitem__(self, number: int) -> int:
        return int(self.numbers[number])

    def __setitem__(self, number: int, value: int) -> None:
        self.numbers[number] = value


def padded(width: int) -> int:
    """The next multiple of LANES."""
    return -(-width // LANES) * LANES


def places(stored: Stored | None) -> tuple[int, int, int]:
    """Addresses of keys and values, and how many slots there are."""
    if stored is None:
        return 0, 0, 0
    keys, values = stored
    return keys.data_ptr(), values.data_ptr(), keys.shape[1]


@lru_cache(maxsize=64)
def bits(number: float) -> int:
    """The bits of a float32."""
    (found,) = struct.unpack("i", struct.pack("f", number))
    return int(found)
