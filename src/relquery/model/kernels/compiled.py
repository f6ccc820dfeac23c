"""Compiling Python functions to machine code that is kept on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

from relquery.arrays import Int64s
from relquery.compilation import Watched, keep
from relquery.model.kernels.instructions.llvm import LANES
from relquery.model.kernels.instructions.vectors import pointer

P = ParamSpec("P")
R = TypeVar("R")
Float = np.float32
Floats = npt.NDArray[np.float32]
Int32s = npt.NDArray[np.int32]


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile at the first call. Products and sums may be fused; else arithmetic is IEEE 754's."""
    return cast(Callable[P, R], _compile(function, {"contract"}))


def reordered(function: Callable[P, R]) -> Callable[P, R]:
    """The same where sums may be computed in any order, which makes vector code of them."""
    return cast(Callable[P, R], _compile(function, {"contract", "reassoc", "nsz"}))


def _compile(function: Callable[..., Any], freedoms: set[str]) -> Any:
    # A call passes tuples number by number: inlined, 64 queries of 100 keys each take a fifth less.
    options = {"nopython": True, "error_model": "numpy", "nogil": True, "forceinline": True}
    options["fastmath"] = freedoms
    made: Any = Watched(function, targetoptions=options)
    keep(made)
    return made


_array: Any = cast(Any, numba).carray


@compiled
def floats(address: int, count: int) -> Floats:
    """The float32 numbers at an address, as an array."""
    return _array(pointer(address), count, np.float32)  # type: ignore[no-any-return]


@compiled
def integers(address: int, count: int) -> Int64s:
    """The int64 numbers at an address, as an array."""
    return _array(pointer(address), count, np.int64)  # type: ignore[no-any-return]


@compiled
def integers32(address: int, count: int) -> Int32s:
    """The int32 numbers at an address, as an array."""
    return _array(pointer(address), count, np.int32)  # type: ignore[no-any-return]


@compiled
def padded(width: int) -> int:
    """The next multiple of LANES."""
    return (width + LANES - 1) // LANES * LANES
