"""Attention over keys and values where they lie in the cache, with a streaming softmax.

A task is a set of tokens; its visits are parts of the cache that some of them see. For each task
and head, a thread keeps maxima, sums and outputs of the tokens' rows while it goes through the
visits in blocks of keys (FlashAttention, Dao et al. 2022). Many rows meet a block as a matrix
product, few rows as dot products with keys in place. Nothing is gathered or padded in memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from relquery.arrays import Int64s
from relquery.model.kernels.compiled import Floats, compiled, floats, integers, reordered
from relquery.model.kernels.elementary import cap_in_place, exp, exp_in_place
from relquery.model.kernels.threads import Body
from relquery.model.kernels.vectors import (
    FLOAT32,
    LANES,
    add_products,
    add_rows,
    dots,
    float_of_bits,
    narrow,
    take_number,
    widen,
)

BLOCK = 64
"""Keys that are read at a time."""
ROWS = 64
"""Rows of a task at most: a token has one for each head that shares its keys."""
FEW = 4
"""Rows from which keys are widened to float32 once instead of for each row."""
MANY = LANES
"""Rows from which a matrix product pays."""
TOGETHER = 4
"""Keys whose dot products with a row are computed together."""

NO_SHIFT, OWN_SHIFTS = -1, -2
"""Shift numbers of a visit: none, or each token its own."""

# The arguments: addresses unless said otherwise, strides in bytes.
(
    NEXT,  # the next pair of task and head
    TICKET,  # the next thread's number
    KIND,  # of queries, keys, values and outputs
    HEADS,
    KV_HEADS,
    WIDTH,  # of a key
    VALUE_WIDTH,
    TASKS,  # (tasks, 4): rows from, to, visits from, to
    TASK_COUNT,
    VISITS,  # (visits, 5): tokens of the task from, to, keys from, to, shift number
    TOKENS,  # of tasks: (rows,) tokens of the packed batch
    POSITIONS,  # of tasks: (rows,)
    SHIFTS,  # of tasks: (rows,) shift numbers where visits say OWN_SHIFTS
    TARGETS,  # of tasks: (rows,) places for partial results, -1 for the output
    SLOTS,  # (keys,); from SCRATCH_FROM on in the step's own store
    KEY_POSITIONS,  # (keys,)
    SCRATCH_FROM,
    QUERIES,
    QUERY_TOKEN,
    QUERY_HEAD,
    OUTPUTS,  # (tokens, heads, value width)
    KEYS,  # (kv heads, slots, width)
    VALUES,
    STORE,  # slots in them
    OWN_KEYS,  # the same of the step's own store
    OWN_VALUES,
    OWN_STORE,
    PARTIALS,  # (places, heads, 2 + padded value width): maximum, sum, output
    MERGED,  # (merged, 3): token, places from, to
    MERGED_COUNT,
    WORK,  # memory of the threads
    WORK_BYTES,  # of each
    SCALE,  # bits of a float32, as are the next
    CAP,  # 0 for none
    WINDOW,  # 0 for none
    SLOPES,  # (heads,) of ALiBi; 0 for none
    SHIFT_VALUES,  # (shift numbers,)
    COSINES,  # (shift numbers, half); 0 if keys carry no position
    SINES,
    HALF,  # of the rotated dimensions
    INTERLEAVED,  # whether neighbours are a pair
    TURN_KEYS,  # whether keys are rotated instead of queries
    ARGUMENTS,
) = range(43)

_NOTHING = np.float32(-np.inf)
_ZERO, _ONE = np.float32(0), np.float32(1)


class _Shape(NamedTuple):
    """Of the network's attention. group: heads that share keys. wide, deep: padded widths of keys
    and values. across: columns of a matrix of rows. size: bytes of a number in the cache."""

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


class _Work(NamedTuple):
    """A thread's memory. keys_at, values_at: (BLOCK,) where a block's are. The other integers are
    addresses of float32 numbers: keys and values (BLOCK, wide or deep), queries and rotated queries
    (rows, wide), columns (wide, across) of queries, scores (BLOCK, up to across) and outputs
    (rows, deep)."""

    keys_at: Int64s
    values_at: Int64s
    keys: int
    values: int
    queries: int
    turned: int
    columns: int
    scores: int
    outputs: int
    maxima: Floats
    sums: Floats
    newest: Floats
    factors: Floats


class _Rows(NamedTuple):
    """The tokens of a task; see the arguments."""

    tokens: Int64s
    positions: Int64s
    shifts: Int64s
    targets: Int64s


class _Visit(NamedTuple):
    """Tokens low to high see keys begin to end.

    first, rows: the first of their rows, and how many. moved: what is subtracted from all their
    positions. earliest, latest: the least and the largest of them then.
    """

    low: int
    high: int
    begin: int
    end: int
    shift: int
    first: int
    rows: int
    moved: int
    earliest: int
    latest: int


@compiled
def padded(width: int) -> int:
    """The next multiple of LANES."""
    return (width + LANES - 1) // LANES * LANES


def work_bytes(group: int, width: int, value_width: int) -> int:
    """Memory that a thread needs."""
    wide, deep = padded(width), padded(value_width)
    rows = max(ROWS, group)
    across = padded(rows) + LANES
    numbers = (BLOCK + rows) * (wide + deep) + rows * wide + (wide + BLOCK + 4) * across
    return 2 * 8 * BLOCK + 4 * padded(numbers)


@compiled
def _shape(a: Int64s) -> _Shape:
    group = a[HEADS] // a[KV_HEADS]
    rows = max(ROWS, group)
    return _Shape(
        a[KIND],
        4 if a[KIND] == FLOAT32 else 2,
        a[HEADS],
        group,
        a[WIDTH],
        a[VALUE_WIDTH],
        padded(a[WIDTH]),
        padded(a[VALUE_WIDTH]),
        rows,
        padded(rows) + LANES,
    )


@compiled
def _work(a: Int64s, shape: _Shape) -> _Work:
    """The memory of the thread that calls it, in the order of work_bytes."""
    keys_at = a[WORK] + take_number(a.ctypes.data + 8 * TICKET) * a[WORK_BYTES]
    values_at = keys_at + 8 * BLOCK
    keys = values_at + 8 * BLOCK
    values = keys + 4 * BLOCK * shape.wide
    queries = values + 4 * BLOCK * shape.deep
    turned = queries + 4 * shape.rows * shape.wide
    columns = turned + 4 * shape.rows * shape.wide
    scores = columns + 4 * shape.wide * shape.across
    outputs = scores + 4 * BLOCK * shape.across
    maxima = outputs + 4 * shape.rows * shape.deep
    return _Work(
        integers(keys_at, BLOCK),
        integers(values_at, BLOCK),
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
    )


@compiled
def _widen(target: int, source: int, kind: int, width: int) -> None:
    """Copy `width` numbers of a kind to float32, and zeros up to the next multiple of LANES."""
    widen(target, source, kind, width)
    rest = floats(target + 4 * width, padded(width) - width)
    for at in range(len(rest)):
        rest[at] = _ZERO


@compiled
def _multiply(
    c: int,
    c_row: int,
    a: int,
    a_row: int,
    a_step: int,
    b: int,
    b_row: int,
    count: int,
    rows: int,
    columns: int,
) -> None:
    """c += a @ b in tiles; for the arguments see `add_products`. columns: a multiple of LANES."""
    row = 0
    while row + 4 <= rows:
        for at in range(0, columns // (4 * LANES) * 4 * LANES, 4 * LANES):
            add_products(c + 4 * at, c_row, a, a_row, a_step, b + 4 * at, b_row, count, 4, 4)
        for at in range(columns // (4 * LANES) * 4 * LANES, columns, LANES):
            add_products(c + 4 * at, c_row, a, a_row, a_step, b + 4 * at, b_row, count, 4, 1)
        c += 4 * c_row
        a += 4 * a_row
        row += 4
    while row < rows:
        for at in range(0, columns, LANES):
            add_products(c + 4 * at, c_row, a, a_row, a_step, b + 4 * at, b_row, count, 1, 1)
        c += c_row
        a += a_row
        row += 1


@compiled
def _turn(target: Floats, source: Floats, a: Int64s, shift: int, back: bool) -> None:
    """Rotate pairs of the first dimensions by a shift; the others are copied."""
    half = a[HALF]
    cosines = floats(a[COSINES] + 4 * half * shift, half)
    sines = floats(a[SINES] + 4 * half * shift, half)
    for pair in range(half):
        first = 2 * pair if a[INTERLEAVED] else pair
        second = first + 1 if a[INTERLEAVED] else pair + half
        sine = -sines[pair] if back else sines[pair]
        x, y = source[first], source[second]
        target[first] = x * cosines[pair] - y * sine
        target[second] = y * cosines[pair] + x * sine
    for at in range(2 * half, len(target)):
        target[at] = source[at]


@compiled
def _begin_rows(a: Int64s, shape: _Shape, work: _Work, rows: _Rows, head: int) -> None:
    """Read a task's queries for one head of keys, scaled, and forget earlier results."""
    scale = float_of_bits(np.int32(a[SCALE]))
    count = len(rows.tokens) * shape.group
    for row in range(count):
        token, of_group = rows.tokens[row // shape.group], row % shape.group
        place = token * a[QUERY_TOKEN] + (head * shape.group + of_group) * a[QUERY_HEAD]
        target = work.queries + 4 * row * shape.wide
        _widen(target, a[QUERIES] + place, shape.kind, shape.width)
        query = floats(target, shape.wide)
        for at in range(shape.wide):
            query[at] *= scale
        work.maxima[row], work.sums[row] = _NOTHING, _ZERO
    outputs = floats(work.outputs, count * shape.deep)
    for at in range(len(outputs)):
        outputs[at] = _ZERO


@compiled
def _turn_queries(a: Int64s, shape: _Shape, work: _Work, rows: _Rows, visit: _Visit) -> None:
    """Rotate a visit's queries back by its shift, from `queries` to `turned`."""
    for row in range(visit.first, visit.first + visit.rows):
        shift = visit.shift if visit.shift >= 0 else rows.shifts[row // shape.group]
        target = floats(work.turned + 4 * row * shape.wide, shape.wide)
        _turn(target, floats(work.queries + 4 * row * shape.wide, shape.wide), a, shift, True)


@compiled
def _set_columns(shape: _Shape, work: _Work, queries: int, first: int, count: int) -> None:
    """Make columns of queries, for matrix products."""
    for at in range(shape.wide):
        line = floats(work.columns + 4 * (at * shape.across + first), count)
        for row in range(count):
            line[row] = floats(queries + 4 * ((first + row) * shape.wide + at), 1)[0]


@compiled
def _visit(a: Int64s, shape: _Shape, rows: _Rows, number: int) -> _Visit:
    listed = integers(a[VISITS] + 5 * 8 * number, 5)
    low, high, shift = listed[0], listed[1], listed[4]
    moved = integers(a[SHIFT_VALUES] + 8 * shift, 1)[0] if shift >= 0 else 0
    earliest = latest = _position(a, rows, low, shift, moved)
    for token in range(low + 1, high):
        position = _position(a, rows, token, shift, moved)
        earliest, latest = min(earliest, position), max(latest, position)
    first, count = low * shape.group, (high - low) * shape.group
    return _Visit(low, high, listed[2], listed[3], shift, first, count, moved, earliest, latest)


@compiled
def _position(a: Int64s, rows: _Rows, token: int, shift: int, moved: int) -> int:
    """Of a token, counted as the keys' positions are."""
    position = rows.positions[token] - moved
    if shift == OWN_SHIFTS:
        position -= integers(a[SHIFT_VALUES] + 8 * rows.shifts[token], 1)[0]
    return int(position)


@compiled
def _find_block(
    a: Int64s, shape: _Shape, work: _Work, head: int, slots: Int64s, in_place: bool
) -> None:
    """Note where a block's keys and values are, in the cache or copied to float32."""
    key_size, value_size = shape.width * shape.size, shape.value_width * shape.size
    keys = a[KEYS] + head * a[STORE] * key_size
    values = a[VALUES] + head * a[STORE] * value_size
    own_from = head * a[OWN_STORE] - a[SCRATCH_FROM]
    own_keys, own_values = a[OWN_KEYS] + own_from * key_size, a[OWN_VALUES] + own_from * value_size
    for j in range(len(slots)):
        is_own = slots[j] >= a[SCRATCH_FROM]
        key = (own_keys if is_own else keys) + slots[j] * key_size
        value = (own_values if is_own else values) + slots[j] * value_size
        if not in_place:
            _widen(work.keys + 4 * j * shape.wide, key, shape.kind, shape.width)
            _widen(work.values + 4 * j * shape.deep, value, shape.kind, shape.value_width)
            key, value = work.keys + 4 * j * shape.wide, work.values + 4 * j * shape.deep
        work.keys_at[j], work.values_at[j] = key, value
    for j in range(len(slots), (len(slots) + TOGETHER - 1) // TOGETHER * TOGETHER):
        work.keys_at[j], work.values_at[j] = work.keys_at[j - 1], work.values_at[j - 1]


@compiled
def _score(
    shape: _Shape, work: _Work, visit: _Visit, queries: int, count: int, columns: int, kind: int
) -> None:
    """Scores (count, columns) of a visit's rows with a block's keys."""
    if visit.rows < MANY:
        for row in range(visit.rows):
            query = queries + 4 * (visit.first + row) * shape.wide
            for key in range(0, count, TOGETHER):
                place = work.scores + 4 * (key * columns + row)
                listed = work.keys_at.ctypes.data + 8 * key
                dots(place, 4 * columns, query, listed, shape.wide, kind, TOGETHER)
        return
    rows = (count + 3) // 4 * 4
    scores = floats(work.scores, rows * columns)
    for at in range(len(scores)):
        scores[at] = _ZERO
    _multiply(
        work.scores,
        4 * columns,
        work.keys,
        4 * shape.wide,
        4,
        work.columns + 4 * visit.first,
        4 * shape.across,
        shape.wide,
        rows,
        columns,
    )


@compiled
def _mask(
    a: Int64s,
    shape: _Shape,
    work: _Work,
    rows: _Rows,
    visit: _Visit,
    positions: Int64s,
    head: int,
    columns: int,
) -> None:
    """Hide the keys that a row does not see; lower scores by the distance under ALiBi."""
    scores = floats(work.scores, len(positions) * columns)
    window, has_slopes = a[WINDOW], a[SLOPES] != 0
    for token in range(visit.low, visit.high):
        position = _position(a, rows, token, visit.shift, visit.moved)
        for of_group in range(shape.group):
            slope = _ZERO
            if has_slopes:
                slope = floats(a[SLOPES] + 4 * (head * shape.group + of_group), 1)[0]
            at = (token - visit.low) * shape.group + of_group
            for j in range(len(positions)):
                distance = position - positions[j]
                if distance < 0 or (window > 0 and distance >= window):
                    scores[at] = _NOTHING
                elif has_slopes:
                    scores[at] -= slope * np.float32(distance)
                at += columns


@reordered
def _soften(
    scores: Floats,
    count: int,
    columns: int,
    maxima: Floats,
    sums: Floats,
    newest: Floats,
    factors: Floats,
) -> None:
    """Replace scores (count, columns) by their exponentials, counted from each row's new maximum.

    Updates the rows' maxima and sums. factors: by which earlier sums and outputs shrink.
    """
    rows = len(maxima)
    for row in range(rows):
        newest[row] = maxima[row]
    for key in range(count):
        line = scores[key * columns : key * columns + rows]
        for row in range(rows):
            newest[row] = max(newest[row], line[row])
    for row in range(rows):
        before, maxima[row] = maxima[row], newest[row]
        if newest[row] == _NOTHING:  # it sees nothing so far
            newest[row] = _ZERO
        factors[row] = before - newest[row]
    exp_in_place(factors, rows)
    for key in range(count):
        line = scores[key * columns : key * columns + rows]
        for row in range(rows):
            line[row] -= newest[row]
    exp_in_place(scores, count * columns)
    for row in range(rows):
        sums[row] *= factors[row]
    for key in range(count):
        line = scores[key * columns : key * columns + rows]
        for row in range(rows):
            sums[row] += line[row]


@reordered
def _soften_one(
    scores: Floats, count: int, maxima: Floats, sums: Floats, newest: Floats, factors: Floats
) -> None:
    """The same for a single row, whose scores are next to each other."""
    largest = before = maxima[0]
    for key in range(count):
        largest = max(largest, scores[key])
    maxima[0] = largest
    if largest == _NOTHING:
        largest = _ZERO
    factors[0] = exp(before - largest)
    total = _ZERO
    for key in range(count):
        scores[key] = exp(scores[key] - largest)
    for key in range(count):
        total += scores[key]
    sums[0] = sums[0] * factors[0] + total


@compiled
def _add_values(
    shape: _Shape, work: _Work, visit: _Visit, count: int, columns: int, kind: int
) -> None:
    """Shrink the outputs of a visit's rows and add a block's weighted values."""
    for row in range(visit.rows):
        if work.factors[row] != _ONE:
            line = floats(work.outputs + 4 * (visit.first + row) * shape.deep, shape.deep)
            for at in range(shape.deep):
                line[at] *= work.factors[row]
    outputs = work.outputs + 4 * visit.first * shape.deep
    if visit.rows >= MANY:
        _multiply(
            outputs,
            4 * shape.deep,
            work.scores,
            4,
            4 * columns,
            work.values,
            4 * shape.deep,
            count,
            visit.rows,
            shape.deep,
        )
        return
    rest = (count + TOGETHER - 1) // TOGETHER * TOGETHER - count
    missing = floats(work.scores + 4 * count * columns, rest * columns)
    for at in range(len(missing)):
        missing[at] = _ZERO
    for row in range(visit.rows):
        target = outputs + 4 * row * shape.deep
        for key in range(0, count, TOGETHER):
            place = work.scores + 4 * (key * columns + row)
            listed = work.values_at.ctypes.data + 8 * key
            add_rows(target, place, 4 * columns, listed, shape.deep, kind, TOGETHER)


@compiled
def _attend_visit(
    a: Int64s, shape: _Shape, work: _Work, rows: _Rows, visit: _Visit, head: int, queries: int
) -> None:
    """Go through the keys of a visit."""
    window = a[WINDOW]
    cap = float_of_bits(np.int32(a[CAP]))
    turns_keys = a[COSINES] != 0 and a[TURN_KEYS] != 0 and visit.shift != NO_SHIFT
    aligned = shape.width == shape.wide and shape.value_width == shape.deep
    in_place = visit.rows < FEW and aligned and not turns_keys
    kind = shape.kind if in_place else FLOAT32
    columns = padded(visit.rows) if visit.rows >= MANY else visit.rows
    maxima = work.maxima[visit.first : visit.first + visit.rows]
    sums = work.sums[visit.first : visit.first + visit.rows]
    for begin in range(visit.begin, visit.end, BLOCK):
        count = min(BLOCK, visit.end - begin)
        positions = integers(a[KEY_POSITIONS] + 8 * begin, count)
        nearest, farthest = positions.min(), positions.max()
        if nearest > visit.latest or (window > 0 and visit.earliest - farthest >= window):
            continue
        hides = farthest > visit.earliest or (window > 0 and visit.latest - nearest >= window)
        _find_block(a, shape, work, head, integers(a[SLOTS] + 8 * begin, count), in_place)
        if turns_keys:
            for j in range(count):
                key = floats(work.keys_at[j], shape.wide)
                _turn(key, key, a, visit.shift, False)
        _score(shape, work, visit, queries, count, columns, kind)
        scores = floats(work.scores, count * columns)
        if cap != _ZERO:
            cap_in_place(scores, count * columns, cap)
        if hides or a[SLOPES] != 0:
            _mask(a, shape, work, rows, visit, positions, head, columns)
        if visit.rows == 1:
            _soften_one(scores, count, maxima, sums, work.newest, work.factors)
        else:
            _soften(scores, count, columns, maxima, sums, work.newest, work.factors)
        _add_values(shape, work, visit, count, columns, kind)


@compiled
def _end_rows(a: Int64s, shape: _Shape, work: _Work, rows: _Rows, head: int) -> None:
    """Write a task's results for one head of keys: outputs, or partial results."""
    for row in range(len(rows.tokens) * shape.group):
        token, target = rows.tokens[row // shape.group], rows.targets[row // shape.group]
        by_head = head * shape.group + row % shape.group
        line = floats(work.outputs + 4 * row * shape.deep, shape.deep)
        if target >= 0:
            length = 2 + shape.deep
            part = floats(a[PARTIALS] + 4 * (target * shape.heads + by_head) * length, length)
            part[0], part[1] = work.maxima[row], work.sums[row]
            part[2:] = line
            continue
        share = _ONE / work.sums[row] if work.sums[row] > _ZERO else _ZERO
        for at in range(shape.deep):
            line[at] *= share
        place = (token * shape.heads + by_head) * shape.value_width * shape.size
        narrow(a[OUTPUTS] + place, line.ctypes.data, shape.kind, shape.value_width)


@compiled
def _attend_task(a: Int64s, shape: _Shape, work: _Work, task: int, head: int) -> None:
    listed = integers(a[TASKS] + 4 * 8 * task, 4)
    first, count = listed[0], listed[1] - listed[0]
    rows = _Rows(
        integers(a[TOKENS] + 8 * first, count),
        integers(a[POSITIONS] + 8 * first, count),
        integers(a[SHIFTS] + 8 * first, count),
        integers(a[TARGETS] + 8 * first, count),
    )
    _begin_rows(a, shape, work, rows, head)
    has_columns = False
    for number in range(listed[2], listed[3]):
        visit = _visit(a, shape, rows, number)
        queries = work.queries
        if visit.shift != NO_SHIFT and a[COSINES] != 0 and a[TURN_KEYS] == 0:
            _turn_queries(a, shape, work, rows, visit)
            queries = work.turned
            has_columns = False
            if visit.rows >= MANY:
                _set_columns(shape, work, queries, visit.first, visit.rows)
        elif visit.rows >= MANY and not has_columns:
            _set_columns(shape, work, queries, 0, count * shape.group)
            has_columns = True
        _attend_visit(a, shape, work, rows, visit, head, queries)
    _end_rows(a, shape, work, rows, head)


@compiled
def _attend_tasks(a: Int64s) -> None:
    """What one thread does: take tasks and heads until none is left."""
    shape = _shape(a)
    work = _work(a, shape)
    heads = a[KV_HEADS]
    while True:
        number = take_number(a.ctypes.data + 8 * NEXT)
        if number >= a[TASK_COUNT] * heads:
            return
        _attend_task(a, shape, work, number // heads, number % heads)


@compiled
def _merge_token(a: Int64s, shape: _Shape, number: int, head: int, joined: Floats) -> None:
    """Join the partial results of a token and head, each by its share of the softmax's sum."""
    listed = integers(a[MERGED] + 3 * 8 * number, 3)
    length = 2 + shape.deep
    largest, total = _NOTHING, _ZERO
    for place in range(listed[1], listed[2]):
        part = floats(a[PARTIALS] + 4 * (place * shape.heads + head) * length, length)
        largest = max(largest, part[0])
    joined[:] = _ZERO
    for place in range(listed[1], listed[2]):
        part = floats(a[PARTIALS] + 4 * (place * shape.heads + head) * length, length)
        if part[1] > _ZERO:
            weight = exp(part[0] - largest)
            total += weight * part[1]
            for at in range(shape.deep):
                joined[at] += weight * part[2 + at]
    share = _ONE / total if total > _ZERO else _ZERO
    for at in range(shape.deep):
        joined[at] *= share
    place = (listed[0] * shape.heads + head) * shape.value_width * shape.size
    narrow(a[OUTPUTS] + place, joined.ctypes.data, shape.kind, shape.value_width)


@compiled
def _merge_tokens(a: Int64s) -> None:
    """What one thread does: take tokens with partial results until none is left."""
    shape = _shape(a)
    joined = floats(_work(a, shape).outputs, shape.deep)
    while True:
        number = take_number(a.ctypes.data + 8 * NEXT)
        if number >= a[MERGED_COUNT]:
            return
        for head in range(shape.heads):
            _merge_token(a, shape, number, head, joined)


def _attend(place: Any) -> None:
    _attend_tasks(integers(place, ARGUMENTS))


def _merge(place: Any) -> None:
    _merge_tokens(integers(place, ARGUMENTS))


ATTEND, MERGE = Body(_attend), Body(_merge)
