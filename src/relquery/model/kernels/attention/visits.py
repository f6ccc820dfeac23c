"""What the tokens of a task do with the keys of a visit."""

from __future__ import annotations

import numpy as np

from relquery.arrays import Int64s
from relquery.model.kernels.attention.arguments import (
    BLOCK,
    CAP,
    KEY_POSITIONS,
    REST,
    SLOPES,
    WINDOW,
)
from relquery.model.kernels.attention.blocks import (
    Block,
    copy_block,
    find_block,
    pair_block,
    prefetch_keys,
    prefetch_values,
    tile_block,
)
from relquery.model.kernels.attention.rotation import turns_keys
from relquery.model.kernels.attention.softmax import soften
from relquery.model.kernels.attention.state import (
    MANY,
    NOTHING,
    ONE,
    TOGETHER,
    ZERO,
    Rows,
    Shape,
    Visit,
    Work,
    position,
)
from relquery.model.kernels.compiled import (
    Floats,
    compiled,
    floats,
    integers,
    integers32,
    padded,
    reordered,
)
from relquery.model.kernels.instructions import amx
from relquery.model.kernels.instructions.elementary import cap_in_place, exp
from relquery.model.kernels.instructions.llvm import BFLOAT16, FLOAT32, LANES
from relquery.model.kernels.instructions.tiles import NOTHING as NOTHING_FETCHED
from relquery.model.kernels.instructions.tiles import add_outputs, add_scores
from relquery.model.kernels.instructions.vectors import (
    add_rows,
    dots,
    dots_of_pairs,
    float_of_bits,
    narrow,
    transpose,
)
from relquery.model.kernels.instructions.vectors import (
    largest as largest_of,
)

FEW = 4
"""Rows from which keys are widened to float32 once instead of for each row."""


@compiled
def attend_visit(
    a: Int64s,
    shape: Shape,
    work: Work,
    rows: Rows,
    visit: Visit,
    head: int,
    queries: int,
    known: Int64s,
) -> None:
    """Go through the keys of a visit. known: see find_block."""
    window = a[WINDOW]
    paired, turned = is_paired(a, shape, visit), turns_keys(a, visit)
    tiled = paired and shape.tiled
    few = visit.rows < FEW or shape.kind == FLOAT32
    in_place = shape.aligned and not turned and (few or paired)
    kind = shape.kind if in_place else FLOAT32
    columns = padded(visit.rows) if visit.rows > 1 else 1
    _begin_visit(work, visit)
    is_known = False
    for begin in range(visit.begin, visit.end, visit.step):
        count = min(visit.step, visit.end - begin)
        positions = integers(a[KEY_POSITIONS] + 8 * begin, count)
        nearest, farthest = positions.min(), positions.max()
        if nearest > visit.latest or (window > 0 and visit.earliest - farthest >= window):
            continue
        block = find_block(a, shape, work, visit, head, begin, known)
        if tiled:
            block = tile_block(shape, work, block)
            _score_in_tiles(shape, work, visit, block, columns)
        else:
            if paired:
                block = pair_block(shape, work, block)
            elif not in_place:
                block = copy_block(a, shape, work, visit, block, turned)
            _score(shape, work, visit, block, queries, columns, kind, paired)
        _finish_scores(a, work, count * columns)
        hides = farthest > visit.earliest or (window > 0 and visit.latest - nearest >= window)
        if hides or a[SLOPES] != 0:
            if not is_known:
                _set_reached(a, shape, work, rows, visit, head)
                is_known = True
            _mask(a, work, visit, positions, columns)
        _soften(work, visit, count, columns, paired)
        _shrink_outputs(shape, work, visit)
        if tiled:
            _add_values_in_tiles(shape, work, visit, block, columns)
        else:
            _add_values(shape, work, visit, block, columns, kind, paired)
    _end_visit(work, visit)


@compiled
def _begin_visit(work: Work, visit: Visit) -> None:
    for row in range(visit.rows):
        work.largest[row] = work.maxima[visit.first + row]
        work.totals[row] = work.sums[visit.first + row]


@compiled
def _end_visit(work: Work, visit: Visit) -> None:
    for row in range(visit.rows):
        work.maxima[visit.first + row] = work.largest[row]
        work.sums[visit.first + row] = work.totals[row]


@compiled
def is_paired(a: Int64s, shape: Shape, visit: Visit) -> bool:
    """Whether a visit's products are of pairs of bfloat16 numbers."""
    return shape.paired and visit.rows >= MANY and not turns_keys(a, visit)


@compiled
def set_columns(
    shape: Shape, work: Work, queries: int, first: int, count: int, paired: bool
) -> None:
    """Make columns of queries, for matrix products."""
    if not paired:
        for at in range(shape.wide):
            line = floats(work.columns + 4 * (at * shape.across + first), count)
            for row in range(count):
                line[row] = floats(queries + 4 * ((first + row) * shape.wide + at), 1)[0]
        return
    pairs = integers32(work.scores, shape.wide // 2)  # scores are not needed now
    for row in range(first, first + count):
        narrow(work.scores, queries + 4 * row * shape.wide, BFLOAT16, shape.wide)
        for at in range(shape.wide // 2):
            integers32(work.columns + 4 * (at * shape.across + row), 1)[0] = pairs[at]


@compiled
def _score(
    shape: Shape,
    work: Work,
    visit: Visit,
    block: Block,
    queries: int,
    columns: int,
    kind: int,
    paired: bool,
) -> None:
    """Scores (keys, columns) of a visit's rows with a block's keys."""
    is_product = visit.rows >= MANY
    # Queries that are not turned are bfloat16 numbers, times a power of two.
    of_pairs = shape.paired and kind == BFLOAT16 and queries == work.queries and not is_product
    of_pairs = of_pairs and shape.wide % (2 * LANES) == 0
    if of_pairs:  # the memory of keys is not needed: they are read in place
        first = queries + 4 * visit.first * shape.wide
        narrow(work.keys, first, BFLOAT16, visit.rows * shape.wide)
    for key in range(0, block.length, TOGETHER):
        prefetch_keys(shape, block, key)
        place, listed = work.scores + 4 * key * columns, block.keys + 8 * key
        if is_product:
            prefetch_values(shape, block, key)
            add_scores(
                place,
                4 * columns,
                listed,
                min(TOGETHER, block.length - key),
                work.columns + 4 * visit.first,
                4 * shape.across,
                columns,
                shape.wide // 2 if paired else shape.wide,
                paired,
                0,
                0,
                NOTHING_FETCHED,
                0,
            )
            continue
        for row in range(visit.rows):
            if of_pairs:
                query = work.keys + 2 * row * shape.wide
                dots_of_pairs(place + 4 * row, 4 * columns, query, listed, shape.wide, TOGETHER)
                continue
            query = queries + 4 * (visit.first + row) * shape.wide
            dots(place + 4 * row, 4 * columns, query, listed, shape.wide, kind, TOGETHER)


@compiled
def _finish_scores(a: Int64s, work: Work, count: int) -> None:
    """Multiply scores by the rest of their scale, and bound them."""
    rest, cap = float_of_bits(np.int32(a[REST])), float_of_bits(np.int32(a[CAP]))
    scores = floats(work.scores, count)
    if rest != ONE:
        for at in range(count):
            scores[at] *= rest
    if cap != ZERO:
        cap_in_place(scores, count, cap)


@compiled
def _set_reached(a: Int64s, shape: Shape, work: Work, rows: Rows, visit: Visit, head: int) -> None:
    """Set what `_mask` needs to know of a visit's rows."""
    row = 0
    for token in range(visit.low, visit.high):
        of_token = np.int32(position(a, rows, token, visit.shift, visit.moved))
        for of_group in range(shape.group):
            work.reached[row] = of_token
            if a[SLOPES] != 0:
                slope = a[SLOPES] + 4 * (head * shape.group + of_group)
                work.slopes[row] = floats(slope, 1)[0]
            row += 1


@compiled
def _mask(a: Int64s, work: Work, visit: Visit, positions: Int64s, columns: int) -> None:
    """Hide the keys that a row does not see; lower scores by the distance under ALiBi."""
    count = visit.rows
    reached, slopes = work.reached[:count], work.slopes[:count]
    # Negative distances are larger than any window when they are taken as unsigned.
    window = np.uint32(a[WINDOW] if a[WINDOW] > 0 else 1 << 31)
    for key in range(len(positions)):
        scores = floats(work.scores + 4 * key * columns, count)
        at = np.int32(positions[key])
        if a[SLOPES] != 0:
            for row in range(count):
                scores[row] -= slopes[row] * np.float32(np.int32(reached[row] - at))
        for row in range(count):
            is_hidden = np.uint32(reached[row] - at) >= window
            scores[row] = NOTHING if is_hidden else scores[row]


@compiled
def _soften(work: Work, visit: Visit, count: int, columns: int, paired: bool) -> None:
    """Make weights of a visit's scores (count, columns); see `soften`."""
    if visit.rows == 1:
        scores = floats(work.scores, count)
        _soften_one(scores, count, work.largest, work.totals, work.factors)
        return
    keys = count
    if paired and count % 2:  # the last pair has one key only
        floats(work.scores + 4 * count * columns, columns)[:] = NOTHING
        keys += 1
    soften(
        work.scores,
        keys,
        columns,
        work.largest.ctypes.data,
        work.totals.ctypes.data,
        work.factors.ctypes.data,
        paired,
    )


@reordered
def _soften_one(scores: Floats, count: int, maxima: Floats, sums: Floats, factors: Floats) -> None:
    """`soften` for a single row, whose scores are next to each other."""
    before = maxima[0]
    maxima[0] = largest = max(before, largest_of(scores.ctypes.data, FLOAT32, count))
    if largest == NOTHING:
        largest = ZERO
    factors[0] = exp(before - largest)
    total = ZERO
    for key in range(count):
        scores[key] = exp(scores[key] - largest)
    for key in range(count):
        total += scores[key]
    sums[0] = sums[0] * factors[0] + total


@compiled
def _shrink_outputs(shape: Shape, work: Work, visit: Visit) -> None:
    """Multiply the outputs of a visit's rows by their factors."""
    for row in range(visit.rows):
        if work.factors[row] != ONE:
            line = floats(work.outputs + 4 * (visit.first + row) * shape.deep, shape.deep)
            for at in range(shape.deep):
                line[at] *= work.factors[row]


@compiled
def _add_values(
    shape: Shape,
    work: Work,
    visit: Visit,
    block: Block,
    columns: int,
    kind: int,
    paired: bool,
) -> None:
    """Add a block's weighted values to the outputs of a visit's rows."""
    outputs = work.outputs + 4 * visit.first * shape.deep
    if visit.rows >= MANY:
        add_outputs(
            outputs,
            4 * shape.deep,
            visit.rows,
            work.scores,
            4 * columns,
            block.values,
            shape.deep,
            (block.length + 1) // 2 if paired else block.length,
            paired,
        )
        return
    rest = (block.length + TOGETHER - 1) // TOGETHER * TOGETHER - block.length
    missing = floats(work.scores + 4 * block.length * columns, rest * columns)
    for at in range(len(missing)):
        missing[at] = ZERO
    for key in range(0, block.length, TOGETHER):
        prefetch_values(shape, block, key)
        place, listed = work.scores + 4 * key * columns, block.values + 8 * key
        for row in range(visit.rows):
            target = outputs + 4 * row * shape.deep
            add_rows(target, place + 4 * row, 4 * columns, listed, shape.deep, kind, TOGETHER)


@compiled
def _score_in_tiles(shape: Shape, work: Work, visit: Visit, block: Block, columns: int) -> None:
    """Scores (keys, columns) of a visit's rows with the keys of a block; see `tile_block`."""
    deep, row, line, across = shape.wide // amx.DEEP, 2 * shape.wide, 4 * columns, 4 * shape.across
    queries = work.columns + 4 * visit.first
    for key in range(0, block.length, 2 * LANES):
        keys = work.keys + key * row
        for at in range(0, columns, 2 * LANES):
            scores, right = work.scores + key * line + 4 * at, queries + 4 * at
            is_wide = columns - at > LANES
            if block.length - key > LANES:
                if is_wide:
                    amx.add_tiles(scores, line, keys, row, right, across, deep, 2, 2, 0)
                else:
                    amx.add_tiles(scores, line, keys, row, right, across, deep, 2, 1, 0)
            elif is_wide:
                amx.add_tiles(scores, line, keys, row, right, across, deep, 1, 2, 0)
            else:
                amx.add_tiles(scores, line, keys, row, right, across, deep, 1, 1, 0)


@compiled
def _add_values_in_tiles(
    shape: Shape, work: Work, visit: Visit, block: Block, columns: int
) -> None:
    """Add a block's weighted values to the outputs of a visit's rows.

    Its weights are pairs of keys for each row. They are turned into numbers of keys for each row,
    which are behind the pairs.
    """
    line, deep = 4 * columns, -(-block.length // amx.DEEP)
    used, lines = (block.length + 1) // 2, deep * LANES
    floats(work.scores + used * line, (lines - used) * columns)[:] = ZERO
    weights, row = work.scores + 2 * BLOCK * shape.across, 2 * BLOCK
    for at in range(0, columns, LANES):
        for pair in range(0, lines, LANES):
            target = weights + at * row + 4 * pair
            transpose(target, row, work.scores + pair * line + 4 * at, line)
    step = 4 * shape.deep
    for first in range(0, columns, 2 * LANES):
        outputs, left = work.outputs + (visit.first + first) * step, weights + first * row
        whole = visit.rows - first >= 2 * LANES
        for at in range(0, shape.deep, 2 * LANES):
            sums, right = outputs + 4 * at, work.values + 4 * at
            if not whole:
                count = min(2 * LANES, shape.deep - at)
                _add_some(shape, work, sums, visit.rows - first, left, right, count, deep)
            elif shape.deep - at > LANES:
                amx.add_tiles(sums, step, left, row, right, step, deep, 2, 2, 1)
            else:
                amx.add_tiles(sums, step, left, row, right, step, deep, 2, 1, 1)


@compiled
def _add_some(
    shape: Shape, work: Work, outputs: int, rows: int, left: int, right: int, across: int, deep: int
) -> None:
    """Add the product of weights and values to the outputs of fewer rows than two tiles have.

    The outputs behind them are of rows that may see other keys.
    """
    sums, line = work.keys + 2 * BLOCK * shape.wide, 8 * LANES  # behind the keys
    row, step = 2 * BLOCK, 4 * shape.deep
    if rows > LANES:
        amx.add_tiles(sums, line, left, row, right, step, deep, 2, 2, 0)
    else:
        amx.add_tiles(sums, line, left, row, right, step, deep, 1, 2, 0)
    for number in range(rows):
        target = floats(outputs + number * step, across)
        target += floats(sums + number * line, across)
