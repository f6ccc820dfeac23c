"""Products with a matrix in panels, as oneDNN packs it: of few rows at the speed of reading it.

oneDNN's own product of one row reads memory at two thirds of the speed that the machine has.
"""

from __future__ import annotations

from typing import Any

from relquery.arrays import Int64s
from relquery.model.kernels.compiled import compiled, floats, integers
from relquery.model.kernels.elementwise import gate
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
TOGETHER = 1 << 16
"""Bytes of panels that a thread goes through, with AMX, for some of the rows before it does for
others. The rows' numbers stay in the first-level cache then: 64 rows take 5 percent less or more,
where weights come from memory."""
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
    GATED,  # whether the result is activation(first half) * second half, whole panels each
    ACTIVATION,
    ARGUMENTS,
) = range(16)

_SUMS = MOST * PANEL * 4 + MOST * 8 + PANEL * 4
_BLOCK = MOST * PANEL * 4
WORK_BYTES = _SUMS + 2 * _BLOCK
"""Memory that a thread needs: sums, and two panels' products that have not been written."""


@compiled
def _multiply_panels(a: Int64s) -> None:
    """What one thread does: take panels until none is left."""
    work = a[WORK] + take_number(a.ctypes.data + 8 * TICKET) * WORK_BYTES
    count = -(-a[OUTPUTS] // a[WIDTH])
    if a[GATED]:
        count //= 2
    if a[TILED]:
        _multiply_in_tiles(a, count, work)
    else:
        _multiply_in_vectors(a, count, work)


@compiled
def _multiply_in_vectors(a: Int64s, count: int, work: int) -> None:
    """What one thread does without AMX. count: panels of the result."""
    size = 2 if a[KIND] == BFLOAT16 else 4
    row, line = _row_of_result(a) * size, a[WIDTH] * size
    panel = take_number(a.ctypes.data + 8 * NEXT)
    while panel < count:
        following = take_number(a.ctypes.data + 8 * NEXT)
        then, wanted = min(following, count - 1), min(a[WIDTH], a[OUTPUTS] - panel * a[WIDTH])
        for first in range(0, a[ROWS], MOST):
            rows = min(MOST, a[ROWS] - first)
            target = a[RESULT] + first * row + panel * line
            if a[GATED]:
                gates, ups, up = work + _SUMS, work + _SUMS + _BLOCK, panel + count
                _multiply_rows(a, panel, up, first, rows, gates, line, wanted, work)
                _multiply_rows(a, up, then, first, rows, ups, line, wanted, work)
                _gate_rows(a, rows, target, row, gates, ups, wanted)
            else:
                _multiply_rows(a, panel, then, first, rows, target, row, wanted, work)
        panel = following


@compiled
def _multiply_rows(
    a: Int64s,
    panel: int,
    following: int,
    first: int,
    rows: int,
    target: int,
    step: int,
    wanted: int,
    work: int,
) -> None:
    """The products of some rows with the `wanted` first outputs of a panel.

    following: the next panel of this thread. target: where they go, `step` bytes from row to row.
    """
    kind, inputs, width = a[KIND], a[INPUTS], a[WIDTH]
    paired = kind == BFLOAT16
    size, begin = 2 if paired else 4, panel * width
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
            soon, ahead = following + above * line, line * 4 // rows
            add_scores(
                sums, PANEL * 4, listed, rows, at, line, width, count, paired, soon, ahead, ONE, 1
            )
    for row in range(rows):
        narrow(target + row * step, sums + row * PANEL * 4, kind, wanted)


@compiled
def _multiply_in_tiles(a: Int64s, count: int, work: int) -> None:
    """What one thread does with AMX: take some panels of the result at a time, of `count`."""
    amx.set_tiles(work, min(a[ROWS], amx.ROWS))
    bytes_of_panels = a[INPUTS] * amx.WIDTH * 2 * (2 if a[GATED] else 1)
    together = max(1, TOGETHER // bytes_of_panels)
    begin = take_number(a.ctypes.data + 8 * NEXT) * together
    while begin < count:
        _multiply_tiles(a, begin, min(begin + together, count), count, work)
        begin = take_number(a.ctypes.data + 8 * NEXT) * together
    amx.end_tiles()


@compiled
def _multiply_tiles(a: Int64s, begin: int, end: int, panels: int, work: int) -> None:
    """Panels `begin` to `end` of the result, which has so many, by AMX."""
    row, line = _row_of_result(a) * 2, amx.WIDTH * 2
    count = min(amx.ROWS, a[ROWS])
    for begun in range(0, a[ROWS], amx.ROWS):
        first = min(begun, a[ROWS] - count)  # all tiles are of one size; some rows are done twice
        for panel in range(begin, end):
            target = a[RESULT] + first * row + panel * line
            if a[GATED]:
                gates, ups = work + _SUMS, work + _SUMS + _BLOCK
                _multiply_tile(a, panel, first, count, gates, line, work)
                _multiply_tile(a, panel + panels, first, count, ups, line, work)
                _gate_rows(a, count, target, row, gates, ups, amx.WIDTH)
            else:
                _multiply_tile(a, panel, first, count, target, row, work)


@compiled
def _multiply_tile(
    a: Int64s, panel: int, first: int, count: int, target: int, step: int, work: int
) -> None:
    """The products of `count` rows from `first` on with one panel."""
    row, begin = a[INPUTS] * 2, panel * amx.WIDTH
    bias, sums = work + amx.CONFIGURATION, work + amx.CONFIGURATION + amx.WIDTH * 4
    if a[BIAS] != 0:
        widen(bias, a[BIAS] + begin * 2, BFLOAT16, amx.WIDTH)
    else:
        floats(bias, amx.WIDTH)[:] = 0
    source, weights, deep = a[SOURCE] + first * row, a[MATRIX] + begin * row, row // (2 * amx.DEEP)
    if a[ROWS] > amx.ROWS // 2:
        amx.multiply_tiles(target, step, source, row, count, weights, deep, bias, sums, 2)
    else:
        amx.multiply_tiles(target, step, source, row, count, weights, deep, bias, sums, 1)


@compiled
def _row_of_result(a: Int64s) -> int:
    """Numbers in a row."""
    return int(a[OUTPUTS] // 2 if a[GATED] else a[OUTPUTS])


@compiled
def _gate_rows(
    a: Int64s, rows: int, target: int, step: int, gates: int, ups: int, width: int
) -> None:
    """Write activation(gates) * ups, which are in the first-level cache still."""
    line = width * (2 if a[KIND] == BFLOAT16 else 4)
    for row in range(rows):
        at = row * line
        gate(target + row * step, gates + at, ups + at, a[ACTIVATION], a[KIND], width)


def _multiply(place: Any) -> None:
    _multiply_panels(integers(place, ARGUMENTS))


MULTIPLY = Body(_multiply)
