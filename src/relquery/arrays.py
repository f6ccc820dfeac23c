"""Types of NumPy arrays for annotations, each named after its content."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]
"""Bits, 32 in each number, the lowest first."""
Floats = npt.NDArray[np.float64]
Float32s = npt.NDArray[np.float32]
Objects = npt.NDArray[np.object_]

TokenIds = npt.NDArray[np.int32]
"""Token ids of a text."""
Slots = npt.NDArray[np.int64]
"""Places in the KV cache, one per token."""
