"""Products of few rows with a matrix that oneDNN has packed, at the speed of reading it.

oneDNN's own product of one row reads memory at two thirds of the speed that the machine has.
"""

from __future__ import annotations

from typing import Any

from relquery.arrays import Int64s
from relquery.model.kernels.compiled import compiled, floats, integers
from relquery.model.kernels.llvm import BFLOAT16
from relquery.model.kernels.threads import Body
from relquery.model.kernels.tiles import add_scores
from relquery.model.kernels.vectors import narrow, take_number, widen

PANEL = 64
"""Outputs that are next to each other in a packed matrix, for each input."""
MOST = 64
"""Rows at most. One row takes three quarters of oneDNN's time, 32 rows nine tenths, 64 the same."""
PAGE = 4096
"""Bytes of a page of memory, at whose end processors stop to read ahead by themselves. One row
takes 8 percent less when the next page is asked for."""

# The arguments: addresses unless said otherwise.
(
    NEXT,  # the next panel
    TICKET,  # the next thread's number
    KIND,  # of all numbers
    ROWS,
    INPUTS,  # a row has
    OUTPUTS,  # a multiple of PANEL
    SOURCE,  # (rows, inputs)
    MATRIX,  # (outputs / PANEL, inputs, PANEL); bfloat16: two inputs are a pair
    BIAS,  # (outputs,), 0 for none
    RESULT,  # (rows, outputs)
    WORK,  # memory of the threads
    ARGUMENTS,
) = range(12)

WORK_BYTES = MOST * PANEL * 4 + MOST * 8 + PANEL * 4
"""Memory that a thread needs."""


@compiled
def _multiply_panels(a: Int64s) -> None:
    """What one thread does: take panels until none is left."""
    kind, rows, inputs, outputs = a[KIND], a[ROWS], a[INPUTS], a[OUTPUTS]
    paired = kind == BFLOAT16
    size = 2 if paired else 4
    sums = a[WORK] + take_number(a.ctypes.data + 8 * TICKET) * WORK_BYTES
    listed, bias = sums + MOST * PANEL * 4, sums + MOST * PANEL * 4 + MOST * 8
    sources = integers(listed, rows)
    for row in range(rows):
        sources[row] = a[SOURCE] + row * inputs * size
    while True:
        panel = take_number(a.ctypes.data + 8 * NEXT)
        if panel >= outputs // PANEL:
            return
        numbers = floats(sums, rows * PANEL)
        numbers[:] = 0
        if a[BIAS] != 0:
            widen(bias, a[BIAS] + panel * PANEL * size, kind, PANEL)
            for row in range(rows):
                numbers[row * PANEL : (row + 1) * PANEL] = floats(bias, PANEL)
        add_scores(
            sums,
            PANEL * 4,
            listed,
            rows,
            a[MATRIX] + panel * inputs * PANEL * size,
            PANEL * 4,
            PANEL,
            inputs // 2 if paired else inputs,
            paired,
            PAGE,
            1,
        )
        for row in range(rows):
            target = a[RESULT] + (row * outputs + panel * PANEL) * size
            narrow(target, sums + row * PANEL * 4, kind, PANEL)


def _multiply(place: Any) -> None:
    _multiply_panels(integers(place, ARGUMENTS))


MULTIPLY = Body(_multiply)
