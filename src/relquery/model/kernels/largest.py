"""The largest number of each row, in one pass over them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from relquery.arrays import Int64s
from relquery.engine.executor import NOT_FINITE
from relquery.model.kernels.arguments import KINDS, Arguments
from relquery.model.kernels.compiled import Floats, compiled, floats, integers
from relquery.model.kernels.instructions.llvm import FLOAT32
from relquery.model.kernels.instructions.vectors import largest, take_number, widen
from relquery.model.kernels.threads import Body, threads

PART = 256
"""Numbers of which the largest is known, before it is looked for."""
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
    WORK,  # memory of the threads
    ARGUMENTS,
) = range(9)

WORK_BYTES = PART * 4
"""Memory that a thread needs."""
_NOTHING = np.float32(-np.inf)


@compiled
def _first_largest(row: int, kind: int, width: int, numbers: Floats) -> int:
    """The place of the largest number of a row, the first of several; NOT_FINITE if it is none."""
    size = 4 if kind == FLOAT32 else 2
    best, part = _NOTHING, 0
    for first in range(0, width, PART):
        found = largest(row + first * size, kind, min(PART, width - first))
        if found > best:
            best, part = found, first
    if not np.isfinite(best):
        return NOT_FINITE
    widen(numbers.ctypes.data, row + part * size, kind, min(PART, width - part))
    at = 0
    while at < min(PART, width - part) - 1 and numbers[at] != best:
        at += 1
    return part + at


@compiled
def _find_rows(a: Int64s) -> None:
    """What one thread does: take rows until none is left."""
    kind, width = a[KIND], a[WIDTH]
    numbers = floats(a[WORK] + take_number(a.ctypes.data + 8 * TICKET) * WORK_BYTES, PART)
    line = width * (4 if kind == FLOAT32 else 2)
    while True:
        row = take_number(a.ctypes.data + 8 * NEXT)
        if row >= a[ROWS]:
            return
        found = integers(a[RESULT] + 8 * row, 1)
        found[0] = _first_largest(a[SOURCE] + row * line, kind, width, numbers)


def _find(place: Any) -> None:
    _find_rows(integers(place, ARGUMENTS))


FIND = Body(_find)


def find_largest(numbers: Tensor) -> Int64s:
    """The place (rows,) of the largest number of each row (rows, width), the first of several.

    NOT_FINITE if the largest is not a finite number; NaN counts for nothing.
    """
    numbers = numbers.contiguous()
    rows, width = numbers.shape
    result = np.empty(rows, dtype=np.int64)
    workers = threads() if rows * width > ALONE else 1
    work = torch.empty(workers * WORK_BYTES, dtype=torch.uint8)
    FIND.run(arguments(numbers, result, work), workers)
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


def arguments(numbers: Tensor, result: Int64s, work: Tensor) -> Arguments:
    """What FIND is told. work: WORK_BYTES for each thread."""
    a = Arguments(ARGUMENTS)
    a[KIND], (a[ROWS], a[WIDTH]) = KINDS[numbers.dtype], numbers.shape
    a[SOURCE], a[RESULT], a[WORK] = numbers.data_ptr(), result.ctypes.data, work.data_ptr()
    return a
