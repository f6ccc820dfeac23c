"""The largest number of each row, in one pass over them."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from relquery.arrays import Int64s
from relquery.engine.executor import NOT_FINITE
from relquery.model.kernels.arguments import KINDS, Arguments
from relquery.model.kernels.threads import Body, threads

ALONE = 1 << 16
"""Numbers that one thread goes through sooner than several begin."""

# The arguments: addresses unless said otherwise.
(
    NEXT,  # the next row
    TICKET,  # the next thread's number
    KIND,  # of the numbers
    ROWS,
    WIDTH,  # of a row
    SOURCE,  # (rows, width)
    RESULT,  # (rows,) int64
    NOTHING,  # the result where no number is finite; a number
    ARGUMENTS,
) = range(9)

FIND = Body("find_largest")


def find_largest(numbers: Tensor) -> Int64s:
    """The place (rows,) of the largest number of each row (rows, width), the first of several.

    NOT_FINITE if the largest is not a finite number; NaN counts for nothing.
    """
    numbers = numbers.contiguous()
    rows, width = numbers.shape
    result = np.empty(rows, dtype=np.int64)
    workers = threads() if rows * width > ALONE else 1
    FIND.run(arguments(numbers, result), workers)
    return result


def places_of_largest(numbers: Tensor) -> Int64s:
    """The same on any device and for any type of numbers."""
    if numbers.device.type == "cpu" and numbers.dtype in KINDS:
        # One body instead of five operators: after a pass their code is in no cache.
        return find_largest(numbers)
    among = numbers.argmax(-1)
    finite = numbers.gather(1, among[:, None]).isfinite()[:, 0]
    places: Int64s = among.where(finite, NOT_FINITE).cpu().numpy()
    return places


def arguments(numbers: Tensor, result: Int64s) -> Arguments:
    """What FIND is told."""
    a = Arguments(ARGUMENTS)
    a[KIND], (a[ROWS], a[WIDTH]) = KINDS[numbers.dtype], numbers.shape
    a[SOURCE], a[RESULT], a[NOTHING] = numbers.data_ptr(), result.ctypes.data, NOT_FINITE
    return a
