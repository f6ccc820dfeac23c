"""Products with a matrix in panels, as oneDNN packs it: of few rows at the speed of reading it.

oneDNN's own product of one row reads memory at two thirds of the speed that the machine has.
"""

from __future__ import annotations

from typing import Any

from relquery.arrays import Int64s
from relquery.model.kernels.compiled import compiled, floats, integers
from relquery.model.kernels.instructions import amx
from relquery.model.kernels.instructions.llvm import BFLOAT16
from relquery.model.kernels.instructions.tiles import LINE, ONE, add_scores
from relquery.model.kernels.instructions.vectors import narrow, take_number, widen
from relquery.model.kernels.threads import Body

PANEL = 64
"""Outputs that are next to each other in a matrix of ours, for each input: as many as oneDNN has
there, but for bfloat16 on processors with AMX, where it has half as many."""
MOST = 64
"""Rows at a time. One row takes 0.75 to 0.9 of oneDNN's time, 32 rows 0.8 to 0.9, 64 the same; more
only if oneDNN has no fast product."""
FEW, MANY = 4, 12
"""Rows of one tile, and of at least three. While the former are multiplied, what follows in the
panel begins to be read; while the latter are, a part of the next panel with each tile."""
DEEP = 64
"""Lines of a panel that the first-level cache holds while more than FEW rows need them. That and
reading the next panel meanwhile make 64 rows of float32 take 0.75 of the time."""
PAGE = 4096
"""Bytes of a page of memory, at whose end processors stop to read ahead by themselves. One row
takes 8 percent less when the next page is asked for, four rows a quarter."""

# The arguments: addresses unless said otherwise.
(
    NEXT,  # the next panel
    TICKET,  # the next thread's number
    KIND,  # of all numbers
    ROWS,
    INPUTS,  # a row has
    OUTPUTS,
    SOURCE,  # (rows, inputs)
    MATRIX,  # panels (inputs, width), the last one filled up; bfloat16: two inputs are a pair
    WIDTH,  # outputs of a panel, at most PANEL
    BIAS,  # (outputs,), 0 for none
    RESULT,  # (rows, outputs)
    WORK,  # memory of the threads
    TILED,  # whether AMX multiplies: panels of amx.WIDTH, inputs a multiple of amx.DEEP
    ARGUMENTS,
) = range(14)

WORK_BYTES = MOST * PANEL * 4 + MOST * 8 + PANEL * 4
"""Memory that a thread needs."""


@compiled
def _multiply_panels(a: Int64s) -> None:
    """What one thread does: take panels until none is left."""
    kind, rows = a[KIND], a[ROWS]
    size = 2 if kind == BFLOAT16 else 4
    count = -(-a[OUTPUTS] // a[WIDTH])
    work = a[WORK] + take_number(a.ctypes.data + 8 * TICKET) * WORK_BYTES
    if a[TILED]:
        amx.set_tiles(work, min(rows, amx.ROWS))
    panel = take_number(a.ctypes.data + 8 * NEXT)
    while panel < count:
        following = take_number(a.ctypes.data + 8 * NEXT)
        if a[TILED]:
            _multiply_in_tiles(a, panel, min(following, count - 1), work)
        else:
            for first in range(0, rows, MOST):
                some, then = min(MOST, rows - first), min(following, count - 1)
                _multiply_rows(a, panel, then, first, some, size, work)
        panel = following
    if a[TILED]:
        amx.end_tiles()


@compiled
def _multiply_rows(
    a: Int64s, panel: int, following: int, first: int, rows: int, size: int, work: int
) -> None:
    """The products of some rows with one panel. following: the next one of this thread."""
    kind, inputs, outputs, width = a[KIND], a[INPUTS], a[OUTPUTS], a[WIDTH]
    paired = kind == BFLOAT16
    begin = panel * width
    wanted = min(width, outputs - begin)
    sums, listed, bias = work, work + MOST * PANEL * 4, work + MOST * PANEL * 4 + MOST * 8
    sources = integers(listed, rows)
    numbers = floats(sums, rows * PANEL)
    numbers[:] = 0
    if a[BIAS] != 0:
        widen(bias, a[BIAS] + begin * size, kind, wanted)
        for row in range(rows):
            numbers[row * PANEL : row * PANEL + wanted] = floats(bias, wanted)
    weights = a[MATRIX] + begin * inputs * size
    lines, line = inputs // 2 if paired else inputs, width * 4
    following = a[MATRIX] + following * line * lines
    deep = DEEP if rows > FEW else lines
    for above in range(0, lines, deep):
        count, at = min(deep, lines - above), weights + above * line
        for row in range(rows):
            sources[row] = a[SOURCE] + (first + row) * inputs * size + above * 4
        if rows < MANY:
            add_scores(
                sums,
                PANEL * 4,
                listed,
                rows,
                at,
                line,
                width,
                count,
                paired,
                at + PAGE,
                line,
                LINE,
                1,
            )
        else:
            soon, step = following + above * line, line * 4 // rows
            add_scores(
                sums, PANEL * 4, listed, rows, at, line, width, count, paired, soon, step, ONE, 1
            )
    for row in range(rows):
        target = a[RESULT] + ((first + row) * outputs + begin) * size
        narrow(target, sums + row * PANEL * 4, kind, wanted)


@compiled
def _multiply_in_tiles(a: Int64s, panel: int, following: int, work: int) -> None:
    """The products of all rows with one panel, by AMX. The following panel begins to be read."""
    rows, inputs, outputs = a[ROWS], a[INPUTS], a[OUTPUTS]
    row, begin = inputs * 2, panel * amx.WIDTH
    whole = row * amx.WIDTH  # bytes of a panel
    weights, ahead = a[MATRIX] + panel * whole, a[MATRIX] + following * whole
    deep = inputs // amx.DEEP
    bias, sums = work + amx.CONFIGURATION, work + amx.CONFIGURATION + amx.WIDTH * 4
    floats(bias, amx.WIDTH)[:] = 0
    if a[BIAS] != 0:
        widen(bias, a[BIAS] + begin * 2, BFLOAT16, amx.WIDTH)
    count = min(amx.ROWS, rows)
    for begun in range(0, rows, amx.ROWS):
        soon = ahead if begun == 0 else ahead + whole // 2
        first = min(begun, rows - count)  # all tiles are of one size; some rows are computed twice
        result, step = a[RESULT] + (first * outputs + begin) * 2, outputs * 2
        at = a[SOURCE] + first * row
        if rows > amx.ROWS:
            amx.multiply_tiles(result, step, at, row, count, weights, deep, bias, sums, soon, 2, 16)
        elif rows > amx.ROWS // 2:
            amx.multiply_tiles(result, step, at, row, count, weights, deep, bias, sums, soon, 2, 32)
        else:
            amx.multiply_tiles(result, step, at, row, count, weights, deep, bias, sums, soon, 1, 32)


def _multiply(place: Any) -> None:
    _multiply_panels(integers(place, ARGUMENTS))


MULTIPLY = Body(_multiply)
