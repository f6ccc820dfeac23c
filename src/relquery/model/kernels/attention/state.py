"""What a thread knows and holds while it attends."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from relquery.arrays import Int64s
from relquery.model.kernels.attention.arguments import (
    BLOCK,
    HEADS,
    KIND,
    KV_HEADS,
    OWN_SHIFTS,
    PAIRED,
    ROWS,
    SHIFT_VALUES,
    TICKET,
    TILED,
    VALUE_WIDTH,
    VISITS,
    WIDTH,
    WORK,
    WORK_BYTES,
)
from relquery.model.kernels.compiled import (
    Floats,
    Int32s,
    compiled,
    floats,
    integers,
    integers32,
    padded,
)
from relquery.model.kernels.instructions import amx
from relquery.model.kernels.instructions.llvm import BFLOAT16, FLOAT32, LANES
from relquery.model.kernels.instructions.vectors import take_number

MANY = LANES
"""Rows from which a matrix product pays."""
TOGETHER = 4
"""Keys that are read together; addresses are listed for a multiple of them."""

NOTHING = np.float32(-np.inf)
ZERO, ONE = np.float32(0), np.float32(1)


class Shape(NamedTuple):
    """Of the network's attention. group: heads that share keys. wide, deep: padded widths of keys
    and values. across: columns of a matrix of rows. size: bytes of a number in the cache. aligned:
    whether widths are padded ones. paired: whether products are of pairs. tiled: by AMX."""

    kind: int
    size: int
    heads: int
    group: int
    width: int
    value_width: int
    wide: int
    deep: int
    rows: int
    across: int
    aligned: bool
    paired: bool
    tiled: bool


class Work(NamedTuple):
    """A thread's memory.

    places: of (6, BLOCK) integers, lists of addresses of a block's keys and values: where they are
    in the cache, for two blocks, and where they are copied to. The other integers are addresses of
    float32 numbers: keys and values (BLOCK, wide or deep), queries and rotated queries (rows,
    wide), columns (wide, across) of queries, scores (BLOCK, up to across) and outputs (rows,
    deep). Where products are of pairs, so are values, columns and weights, in half as many lines.
    maxima, sums: (across,) of the task's rows; largest, totals: those of the visit's rows, with
    padding after them. factors: (across,) by which outputs shrink at a block. reached, slopes:
    (across,) positions of the visit's rows, counted as the keys' are, and their heads' slopes.
    """

    places: int
    keys: int
    values: int
    queries: int
    turned: int
    columns: int
    scores: int
    outputs: int
    maxima: Floats
    sums: Floats
    largest: Floats
    totals: Floats
    factors: Floats
    reached: Int32s
    slopes: Floats


class Rows(NamedTuple):
    """The tokens of a task; see the arguments."""

    tokens: Int64s
    positions: Int64s
    shifts: Int64s
    targets: Int64s


class Visit(NamedTuple):
    """Tokens low to high see keys begin to end.

    step: keys of a block. then: the first key of the task's next visit, where its keys end, and its
    step; no keys if there is no next visit.
    first, rows: the first of their rows, and how many. moved: what is subtracted from all their
    positions. earliest, latest: the least and the largest of them then.
    """

    low: int
    high: int
    begin: int
    end: int
    step: int
    then: tuple[int, int, int]
    shift: int
    first: int
    rows: int
    moved: int
    earliest: int
    latest: int


@compiled
def find_shape(a: Int64s) -> Shape:
    """The shape that the arguments tell."""
    group = a[HEADS] // a[KV_HEADS]
    rows = max(ROWS, group)
    wide, deep = padded(a[WIDTH]), padded(a[VALUE_WIDTH])
    aligned = wide == a[WIDTH] and deep == a[VALUE_WIDTH]
    paired = aligned and a[KIND] == BFLOAT16 and a[PAIRED] != 0
    return Shape(
        a[KIND],
        4 if a[KIND] == FLOAT32 else 2,
        a[HEADS],
        group,
        a[WIDTH],
        a[VALUE_WIDTH],
        wide,
        deep,
        rows,
        padded(rows) + LANES,
        aligned,
        paired,
        paired and a[TILED] != 0 and wide % amx.DEEP == 0,
    )


@compiled
def find_work(a: Int64s, shape: Shape) -> Work:
    """The memory of the thread that calls it, in the order of work_bytes."""
    places = a[WORK] + take_number(a.ctypes.data + 8 * TICKET) * a[WORK_BYTES]
    keys = places + 6 * 8 * BLOCK
    values = keys + 4 * BLOCK * shape.wide
    queries = values + 4 * BLOCK * shape.deep
    turned = queries + 4 * shape.rows * shape.wide
    columns = turned + 4 * shape.rows * shape.wide
    scores = columns + 4 * shape.wide * shape.across
    outputs = scores + 4 * BLOCK * shape.across
    maxima = outputs + 4 * shape.rows * shape.deep
    return Work(
        places,
        keys,
        values,
        queries,
        turned,
        columns,
        scores,
        outputs,
        floats(maxima, shape.across),
        floats(maxima + 4 * shape.across, shape.across),
        floats(maxima + 8 * shape.across, shape.across),
        floats(maxima + 12 * shape.across, shape.across),
        floats(maxima + 16 * shape.across, shape.across),
        integers32(maxima + 20 * shape.across, shape.across),
        floats(maxima + 24 * shape.across, shape.across),
    )


@compiled
def find_visit(a: Int64s, shape: Shape, rows: Rows, number: int, last: bool) -> Visit:
    """A visit by its number. last: whether it is the last of its task."""
    listed = integers(a[VISITS] + 5 * 8 * number, 5)
    low, high, shift = listed[0], listed[1], listed[4]
    moved = integers(a[SHIFT_VALUES] + 8 * shift, 1)[0] if shift >= 0 else 0
    earliest = latest = position(a, rows, low, shift, moved)
    for token in range(low + 1, high):
        place = position(a, rows, token, shift, moved)
        earliest, latest = min(earliest, place), max(latest, place)
    then = (0, 0, BLOCK)
    if not last:
        following = integers(a[VISITS] + 5 * 8 * (number + 1), 5)
        then = (following[2], following[3], _step(shape, following))
    first, count = low * shape.group, (high - low) * shape.group
    return Visit(
        low,
        high,
        listed[2],
        listed[3],
        _step(shape, listed),
        then,
        shift,
        first,
        count,
        moved,
        earliest,
        latest,
    )


@compiled
def _step(shape: Shape, listed: Int64s) -> int:
    """Keys of a block of a visit.

    Where few rows read them, memory is the limit, and the next block is on its way while one is
    used. So blocks are about equally long: after 64 keys and 8, the next 64 would come too late.
    """
    keys = listed[3] - listed[2]
    if (listed[1] - listed[0]) * shape.group >= MANY or keys <= BLOCK:
        return BLOCK
    even = -(-keys // -(-keys // BLOCK))
    return int(-(-even // TOGETHER) * TOGETHER)


@compiled
def position(a: Int64s, rows: Rows, token: int, shift: int, moved: int) -> int:
    """Of a token, counted as the keys' positions are."""
    found = rows.positions[token] - moved
    if shift == OWN_SHIFTS:
        found -= integers(a[SHIFT_VALUES] + 8 * rows.shifts[token], 1)[0]
    return int(found)
