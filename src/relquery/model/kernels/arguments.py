"""Tensors and numbers as arguments of compiled bodies."""

from __future__ import annotations

import struct
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from relquery.arrays import Int64s
from relquery.model.kernels.instructions.llvm import BFLOAT16, FLOAT16, FLOAT32

KINDS = {torch.float32: FLOAT32, torch.bfloat16: BFLOAT16, torch.float16: FLOAT16}
"""Types of numbers that compiled bodies read and write."""

Stored = tuple[Tensor, Tensor]
"""Keys and values of one layer in one store, each (kv_heads, slots, width)."""


class Arguments:
    """int64 arguments of a body, by number."""

    __slots__ = ("numbers", "place")

    def __init__(self, count: int) -> None:
        self.numbers: Int64s = np.zeros(count, dtype=np.int64)
        self.place = self.numbers.ctypes.data

    def __getitem__(self, number: int) -> int:
        return int(self.numbers[number])

    def __setitem__(self, number: int, value: int) -> None:
        self.numbers[number] = value


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
