"""Attention over keys and values where they lie in the cache, with a streaming softmax.

A task is a set of query rows; its visits are parts of the cache that some of them see. For each
task and head, a thread keeps the rows' maxima, sums and outputs while it goes through the visits in
blocks of keys (FlashAttention, Dao et al. 2022). Many rows meet a block as a matrix product, few
rows as dot products that read the cache in place. Nothing is gathered or padded in memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit

from relquery.model.kernels.elementary import cap_in_place, exp, exp_in_place
from relquery.model.kernels.threads import Body
from relquery.model.kernels.vectors import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    LANES,
    add_products,
    add_rows,
    convert,
    dots,
    float_of_bits,
    pointer,
    take_number,
)

BLOCK = 64
"""Keys that are read at a time."""
ROWS = 64
"""Query rows of a task at most; a token has one for each head that shares its keys."""
FEW = 4
"""Rows from which keys are widened to float32 once instead of for each row."""
MANY = LANES
"""Rows from which a matrix product pays."""

NO_SHIFT, OWN_SHIFTS = -1, -2
"""Shift numbers of a visit: none, or one for each row."""

# The arguments: addresses unless said otherwise, strides in bytes.
(
    NEXT,  # the next task of a head
    TICKET,  # the next thread's number
    KIND,  # of queries, keys, values and outputs
    HEADS,
    KV_HEADS,
    WIDTH,  # of a key
    VALUE_WIDTH,
    TASKS,  # (tasks, 4): rows from, to, visits from, to
    TASK_COUNT,
    VISITS,  # (visits, 5): tokens of the task from, to, keys from, to, shift number
    TOKENS,  # (rows,) of tasks: tokens of the packed batch
    AT,  # (rows,): their positions
    SHIFTS,  # (rows,): their shift numbers, where visits say OWN_SHIFTS
    TARGETS,  # (rows,): places for partial results, -1 for the output
    SLOTS,  # (keys,): from SCRATCH_FROM on in the step's own store
    POSITIONS,  # (keys,)
    SCRATCH_FROM,
    QUERY,
    QUERY_TOKEN,
    QUERY_HEAD,
    OUTPUT,  # (tokens, heads, value width)
    KEYS,  # (kv heads, slots, width)
    VALUES,
    STORE,  # slots in them
    OWN_KEYS,  # the same of the step's own store
    OWN_VALUES,
    OWN_STORE,
    PARTIALS,  # (places, heads, 2 + padded value width): maximum, sum, output
    MERGED,  # (merged, 3): token, places from, to
    MERGED_COUNT,
    WORK,  # float32 memory of the threads
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

_NEGATIVE_INFINITY = np.float32(-np.inf)
_ZERO, _ONE = np.float32(0), np.float32(1)
_EXACT = {"contract"}
_LOOSE = {"contract", "reassoc", "nsz"}


@njit(error_model="numpy")
def padded(width: Any) -> Any:
    """The next multiple of LANES."""
    return (width + LANES - 1) // LANES * LANES


def work_bytes(rows: int, width: int, value_width: int) -> int:
    """Memory that a thread needs for tasks of so many rows."""
    wide, deep = padded(width), padded(value_width)
    columns = padded(rows) + LANES
    floats = (
        BLOCK * (wide + deep)  # keys, values
        + rows * wide * 2  # queries, rotated queries
        + wide * columns  # columns of queries
        + BLOCK * columns  # scores
        + rows * deep  # outputs
        + 4 * columns  # maxima, sums, new maxima, factors
    )
    return padded(floats) * 4 + 2 * BLOCK * 8  # addresses of keys and values


@njit(error_model="numpy", fastmath=_EXACT)
def _floats(address: Any, count: Any) -> Any:
    return carray(pointer(address), count, np.float32)


@njit(error_model="numpy")
def _integers(address: Any, count: Any) -> Any:
    return carray(pointer(address), count, np.int64)


@njit(error_model="numpy")
def _widen(target: Any, source: Any, kind: Any, width: Any) -> None:
    """Copy `width` numbers of a kind to float32, and zeros up to the next multiple of LANES."""
    whole = width // LANES * LANES
    for at in range(0, whole, LANES):
        if kind == FLOAT32:
            convert(target + 4 * at, FLOAT32, source + 4 * at, FLOAT32, LANES)
        elif kind == BFLOAT16:
            convert(target + 4 * at, FLOAT32, source + 2 * at, BFLOAT16, LANES)
        else:
            convert(target + 4 * at, FLOAT32, source + 2 * at, FLOAT16, LANES)
    if whole == width:
        return
    for at in range(whole, width):
        if kind == FLOAT32:
            convert(target + 4 * at, FLOAT32, source + 4 * at, FLOAT32, 1)
        elif kind == BFLOAT16:
            convert(target + 4 * at, FLOAT32, source + 2 * at, BFLOAT16, 1)
        else:
            convert(target + 4 * at, FLOAT32, source + 2 * at, FLOAT16, 1)
    rest = _floats(target + 4 * width, whole + LANES - width)
    for at in range(len(rest)):
        rest[at] = _ZERO


@njit(error_model="numpy")
def _narrow(target: Any, source: Any, kind: Any, width: Any) -> None:
    """Copy `width` float32 numbers to a kind."""
    whole = width // LANES * LANES
    for at in range(0, whole, LANES):
        if kind == FLOAT32:
            convert(target + 4 * at, FLOAT32, source + 4 * at, FLOAT32, LANES)
        elif kind == BFLOAT16:
            convert(target + 2 * at, BFLOAT16, source + 4 * at, FLOAT32, LANES)
        else:
            convert(target + 2 * at, FLOAT16, source + 4 * at, FLOAT32, LANES)
    for at in range(whole, width):
        if kind == FLOAT32:
            convert(target + 4 * at, FLOAT32, source + 4 * at, FLOAT32, 1)
        elif kind == BFLOAT16:
            convert(target + 2 * at, BFLOAT16, source + 4 * at, FLOAT32, 1)
        else:
            convert(target + 2 * at, FLOAT16, source + 4 * at, FLOAT32, 1)


@njit(error_model="numpy")
def _score_few(
    scores: Any, row: Any, query: Any, keys: Any, count: Any, width: Any, kind: Any, step: Any
) -> None:
    """The dot products of one query with `count` keys, whose addresses are listed at `keys`."""
    at = 0
    while at + 4 <= count:
        place = scores + 4 * row + at * step
        if kind == FLOAT32:
            dots(place, step, query, keys + 8 * at, width, FLOAT32, 4)
        elif kind == BFLOAT16:
            dots(place, step, query, keys + 8 * at, width, BFLOAT16, 4)
        else:
            dots(place, step, query, keys + 8 * at, width, FLOAT16, 4)
        at += 4
    while at < count:
        place = scores + 4 * row + at * step
        if kind == FLOAT32:
            dots(place, step, query, keys + 8 * at, width, FLOAT32, 1)
        elif kind == BFLOAT16:
            dots(place, step, query, keys + 8 * at, width, BFLOAT16, 1)
        else:
            dots(place, step, query, keys + 8 * at, width, FLOAT16, 1)
        at += 1


@njit(error_model="numpy")
def _add_few(
    sums: Any, weights: Any, step: Any, values: Any, count: Any, width: Any, kind: Any
) -> None:
    """Add `count` weighted values, whose addresses are listed at `values`."""
    at = 0
    while at + 4 <= count:
        place = weights + at * step
        if kind == FLOAT32:
            add_rows(sums, place, step, values + 8 * at, width, FLOAT32, 4)
        elif kind == BFLOAT16:
            add_rows(sums, place, step, values + 8 * at, width, BFLOAT16, 4)
        else:
            add_rows(sums, place, step, values + 8 * at, width, FLOAT16, 4)
        at += 4
    while at < count:
        place = weights + at * step
        if kind == FLOAT32:
            add_rows(sums, place, step, values + 8 * at, width, FLOAT32, 1)
        elif kind == BFLOAT16:
            add_rows(sums, place, step, values + 8 * at, width, BFLOAT16, 1)
        else:
            add_rows(sums, place, step, values + 8 * at, width, FLOAT16, 1)
        at += 1


@njit(error_model="numpy")
def _multiply(
    c: Any,
    c_row: Any,
    a: Any,
    a_row: Any,
    a_step: Any,
    b: Any,
    b_row: Any,
    count: Any,
    rows: Any,
    columns: Any,
) -> None:
    """c += a @ b; for the arguments see `add_products`. columns: a multiple of LANES."""
    row = 0
    while row + 4 <= rows:
        column = 0
        while column + 4 * LANES <= columns:
            add_products(
                c + 4 * column, c_row, a, a_row, a_step, b + 4 * column, b_row, count, 4, 4
            )
            column += 4 * LANES
        while column < columns:
            add_products(
                c + 4 * column, c_row, a, a_row, a_step, b + 4 * column, b_row, count, 4, 1
            )
            column += LANES
        c += 4 * c_row
        a += 4 * a_row
        row += 4
    while row < rows:
        column = 0
        while column < columns:
            add_products(
                c + 4 * column, c_row, a, a_row, a_step, b + 4 * column, b_row, count, 1, 1
            )
            column += LANES
        c += c_row
        a += a_row
        row += 1


@njit(error_model="numpy", fastmath=_EXACT)
def _turn(target: Any, source: Any, cosines: Any, sines: Any, interleaved: Any, back: Any) -> None:
    """Rotate pairs of the first dimensions; `back` turns by minus the angles."""
    half = len(cosines)
    for pair in range(half):
        first = 2 * pair if interleaved else pair
        second = first + 1 if interleaved else pair + half
        sine = -sines[pair] if back else sines[pair]
        a, b = source[first], source[second]
        target[first] = a * cosines[pair] - b * sine
        target[second] = b * cosines[pair] + a * sine


@njit(error_model="numpy", fastmath=_LOOSE)
def _soften(
    scores: Any,
    count: Any,
    rows: Any,
    columns: Any,
    maxima: Any,
    sums: Any,
    newest: Any,
    factors: Any,
) -> None:
    """Replace scores (count, columns) by their exponentials, counted from each row's new maximum.

    Updates the rows' maxima and sums; factors: by which earlier sums and outputs shrink.
    """
    if rows == 1:
        largest = maxima[0]
        for key in range(count):
            largest = max(largest, scores[key])
        newest[0] = largest
    else:
        for row in range(rows):
            newest[row] = maxima[row]
        for key in range(count):
            line = scores[key * columns : key * columns + rows]
            for row in range(rows):
                newest[row] = max(newest[row], line[row])
    for row in range(rows):
        before, largest = maxima[row], newest[row]
        maxima[row] = largest
        if largest == _NEGATIVE_INFINITY:  # it sees nothing so far
            largest = _ZERO
        newest[row] = largest
        factors[row] = before - largest
    exp_in_place(factors, rows)
    if rows == 1:
        largest = newest[0]
        for key in range(count):
            scores[key] -= largest
    else:
        for key in range(count):
            line = scores[key * columns : key * columns + rows]
            for row in range(rows):
                line[row] -= newest[row]
    exp_in_place(scores, count * columns)
    if rows == 1:
        total = _ZERO
        for key in range(count):
            total += scores[key]
        sums[0] = sums[0] * factors[0] + total
    else:
        for row in range(rows):
            sums[row] *= factors[row]
        for key in range(count):
            line = scores[key * columns : key * columns + rows]
            for row in range(rows):
                sums[row] += line[row]


@njit(error_model="numpy", fastmath=_EXACT)
def _attend_tasks(a: Any) -> None:
    """What one thread does: take tasks until none is left."""
    kind, width, value_width = a[KIND], a[WIDTH], a[VALUE_WIDTH]
    size = 4 if kind == FLOAT32 else 2
    heads, kv_heads = a[HEADS], a[KV_HEADS]
    group = heads // kv_heads
    wide, deep = padded(width), padded(value_width)
    limit = max(ROWS, group)
    across = padded(limit) + LANES
    # The thread's own memory, in the order of work_bytes.
    work = a[WORK] + take_number(a.ctypes.data + 8 * TICKET) * a[WORK_BYTES]
    listed_keys = work
    listed_values = work + 8 * BLOCK
    at = work + 16 * BLOCK
    key_block = at
    at += 4 * BLOCK * wide
    value_block = at
    at += 4 * BLOCK * deep
    queries = at
    at += 4 * limit * wide
    turned = at
    at += 4 * limit * wide
    columns_at = at
    at += 4 * wide * across
    scores_at = at
    at += 4 * BLOCK * across
    outputs = at
    at += 4 * limit * deep
    maxima_all = _floats(at, across)
    at += 4 * across
    sums_all = _floats(at, across)
    at += 4 * across
    newest = _floats(at, across)
    at += 4 * across
    factors = _floats(at, across)
    keys_at, values_at = _integers(listed_keys, BLOCK), _integers(listed_values, BLOCK)

    tasks = _integers(a[TASKS], 4 * a[TASK_COUNT])
    scale = float_of_bits(np.int32(a[SCALE]))
    cap = float_of_bits(np.int32(a[CAP]))
    window, half = a[WINDOW], a[HALF]
    turns = a[COSINES] != 0
    total = a[TASK_COUNT] * kv_heads
    while True:
        number = take_number(a.ctypes.data + 8 * NEXT)
        if number >= total:
            return
        task, head = number // kv_heads, number % kv_heads
        key_begin = a[KEYS] + head * a[STORE] * width * size
        value_begin = a[VALUES] + head * a[STORE] * value_width * size
        skipped = head * a[OWN_STORE] - a[SCRATCH_FROM]
        own_key_begin = a[OWN_KEYS] + skipped * width * size
        own_value_begin = a[OWN_VALUES] + skipped * value_width * size
        first_row, last_row = tasks[4 * task], tasks[4 * task + 1]
        tokens = last_row - first_row
        rows = tokens * group
        token_of = _integers(a[TOKENS] + 8 * first_row, tokens)
        position_of = _integers(a[AT] + 8 * first_row, tokens)
        shift_of = _integers(a[SHIFTS] + 8 * first_row, tokens)
        target_of = _integers(a[TARGETS] + 8 * first_row, tokens)
        for row in range(rows):
            source = (
                a[QUERY]
                + token_of[row // group] * a[QUERY_TOKEN]
                + (head * group + row % group) * a[QUERY_HEAD]
            )
            _widen(queries + 4 * row * wide, source, kind, width)
        numbers = _floats(queries, rows * wide)
        for i in range(rows * wide):
            numbers[i] *= scale
        for row in range(rows):
            maxima_all[row] = _NEGATIVE_INFINITY
            sums_all[row] = _ZERO
        numbers = _floats(outputs, rows * deep)
        for i in range(rows * deep):
            numbers[i] = _ZERO
        columns_ready = False
        for visit in range(tasks[4 * task + 2], tasks[4 * task + 3]):
            seen = _integers(a[VISITS] + 40 * visit, 5)
            low, high, shift = seen[0], seen[1], seen[4]
            from_row, count_rows = low * group, (high - low) * group
            turn_queries = turns and shift != NO_SHIFT and not a[TURN_KEYS]
            turn_keys = turns and shift != NO_SHIFT and a[TURN_KEYS] != 0
            rows_at = queries
            if turn_queries:
                rows_at = turned
                for row in range(from_row, from_row + count_rows):
                    by = shift if shift >= 0 else shift_of[row // group]
                    source_row = _floats(queries + 4 * row * wide, wide)
                    target_row = _floats(turned + 4 * row * wide, wide)
                    for i in range(2 * half, wide):
                        target_row[i] = source_row[i]
                    _turn(
                        target_row,
                        source_row,
                        _floats(a[COSINES] + 4 * half * by, half),
                        _floats(a[SINES] + 4 * half * by, half),
                        a[INTERLEAVED] != 0,
                        True,
                    )
            many = count_rows >= MANY
            if many and (turn_queries or not columns_ready):
                begin, end = (from_row, from_row + count_rows) if turn_queries else (0, rows)
                columns_ready = not turn_queries
                for i in range(wide):
                    line = _floats(columns_at + 4 * (i * across + begin), end - begin)
                    for row in range(begin, end):
                        line[row - begin] = _floats(rows_at + 4 * (row * wide + i), 1)[0]
            earliest, latest = position_of[low], position_of[low]
            for token in range(low, high):
                place = position_of[token]
                if shift == OWN_SHIFTS:
                    place -= _integers(a[SHIFT_VALUES] + 8 * shift_of[token], 1)[0]
                if token == low:
                    earliest = place
                    latest = place
                earliest, latest = min(earliest, place), max(latest, place)
            moved = _integers(a[SHIFT_VALUES] + 8 * shift, 1)[0] if shift >= 0 else 0
            earliest -= moved
            latest -= moved
            in_place = count_rows < FEW and width == wide and value_width == deep and not turn_keys
            stored = kind if in_place else FLOAT32
            columns = padded(count_rows) if many else count_rows
            scores = _floats(scores_at, BLOCK * columns)
            maxima, sums = maxima_all[from_row:], sums_all[from_row:]
            for key in range(seen[2], seen[3], BLOCK):
                count = min(BLOCK, seen[3] - key)
                slots = _integers(a[SLOTS] + 8 * key, count)
                places = _integers(a[POSITIONS] + 8 * key, count)
                nearest, farthest = places[0], places[0]
                for j in range(count):
                    nearest, farthest = min(nearest, places[j]), max(farthest, places[j])
                if nearest > latest or (window > 0 and earliest - farthest >= window):
                    continue
                hides = farthest > earliest or (window > 0 and latest - nearest >= window)
                for j in range(count):
                    slot = slots[j]
                    if slot < a[SCRATCH_FROM]:
                        key_from = key_begin + slot * width * size
                        value_from = value_begin + slot * value_width * size
                    else:
                        key_from = own_key_begin + slot * width * size
                        value_from = own_value_begin + slot * value_width * size
                    if not in_place:
                        _widen(key_block + 4 * j * wide, key_from, kind, width)
                        _widen(value_block + 4 * j * deep, value_from, kind, value_width)
                        key_from = key_block + 4 * j * wide
                        value_from = value_block + 4 * j * deep
                    keys_at[j], values_at[j] = key_from, value_from
                if turn_keys:
                    for j in range(count):
                        line = _floats(keys_at[j], wide)
                        _turn(
                            line,
                            line,
                            _floats(a[COSINES] + 4 * half * shift, half),
                            _floats(a[SINES] + 4 * half * shift, half),
                            a[INTERLEAVED] != 0,
                            False,
                        )
                if many:
                    for i in range(padded(count) * columns):
                        scores[i] = _ZERO
                    _multiply(
                        scores_at,
                        4 * columns,
                        key_block,
                        4 * wide,
                        4,
                        columns_at + 4 * from_row,
                        4 * across,
                        wide,
                        (count + 3) // 4 * 4,
                        columns,
                    )
                else:
                    for row in range(count_rows):
                        query = rows_at + 4 * (from_row + row) * wide
                        _score_few(
                            scores_at, row, query, listed_keys, count, wide, stored, 4 * columns
                        )
                if cap != _ZERO:
                    cap_in_place(scores, count * columns, cap)
                if hides or a[SLOPES] != 0:
                    _mask(
                        scores,
                        columns,
                        group,
                        low,
                        high,
                        head,
                        a,
                        places,
                        position_of,
                        shift_of,
                        shift,
                        moved,
                    )
                _soften(scores, count, count_rows, columns, maxima, sums, newest, factors)
                for row in range(count_rows):
                    if factors[row] != _ONE:
                        line = _floats(outputs + 4 * (from_row + row) * deep, deep)
                        for i in range(deep):
                            line[i] *= factors[row]
                if many:
                    _multiply(
                        outputs + 4 * from_row * deep,
                        4 * deep,
                        scores_at,
                        4,
                        4 * columns,
                        value_block,
                        4 * deep,
                        count,
                        count_rows,
                        deep,
                    )
                else:
                    for row in range(count_rows):
                        _add_few(
                            outputs + 4 * (from_row + row) * deep,
                            scores_at + 4 * row,
                            4 * columns,
                            listed_values,
                            count,
                            deep,
                            stored,
                        )
        for row in range(rows):
            line = _floats(outputs + 4 * row * deep, deep)
            by_head = head * group + row % group
            target = target_of[row // group]
            if target >= 0:
                kept = _floats(a[PARTIALS] + 4 * (target * heads + by_head) * (2 + deep), 2 + deep)
                kept[0], kept[1] = maxima_all[row], sums_all[row]
                for i in range(deep):
                    kept[2 + i] = line[i]
                continue
            share = _ONE / sums_all[row] if sums_all[row] > _ZERO else _ZERO
            for i in range(deep):
                line[i] *= share
            place = (token_of[row // group] * heads + by_head) * value_width * size
            _narrow(a[OUTPUT] + place, outputs + 4 * row * deep, kind, value_width)


@njit(error_model="numpy", fastmath=_EXACT)
def _mask(
    scores: Any,
    columns: Any,
    group: Any,
    low: Any,
    high: Any,
    head: Any,
    a: Any,
    places: Any,
    position_of: Any,
    shift_of: Any,
    shift: Any,
    moved: Any,
) -> None:
    """Hide the keys that a row does not see; lower scores by the distance under ALiBi."""
    window = a[WINDOW]
    for token in range(low, high):
        position = position_of[token] - moved
        if shift == OWN_SHIFTS:
            position -= _integers(a[SHIFT_VALUES] + 8 * shift_of[token], 1)[0]
        for j in range(len(places)):
            distance = position - places[j]
            hidden = distance < 0 or (window > 0 and distance >= window)
            for of_group in range(group):
                at = j * columns + (token - low) * group + of_group
                if hidden:
                    scores[at] = _NEGATIVE_INFINITY
                elif a[SLOPES] != 0:
                    slope = _floats(a[SLOPES] + 4 * (head * group + of_group), 1)[0]
                    scores[at] -= slope * np.float32(distance)


@njit(error_model="numpy", fastmath=_EXACT)
def _merge_tokens(a: Any) -> None:
    """What one thread does to join the partial results of tokens, each by its share."""
    heads, value_width = a[HEADS], a[VALUE_WIDTH]
    size = 4 if a[KIND] == FLOAT32 else 2
    length = 2 + padded(value_width)
    work = a[WORK] + take_number(a.ctypes.data + 8 * TICKET) * a[WORK_BYTES]
    joined = _floats(work, length - 2)
    while True:
        number = take_number(a.ctypes.data + 8 * NEXT)
        if number >= a[MERGED_COUNT]:
            return
        merged = _integers(a[MERGED] + 24 * number, 3)
        for head in range(heads):
            largest = _NEGATIVE_INFINITY
            for place in range(merged[1], merged[2]):
                largest = max(
                    largest, _floats(a[PARTIALS] + 4 * (place * heads + head) * length, 1)[0]
                )
            for i in range(length - 2):
                joined[i] = _ZERO
            total = _ZERO
            for place in range(merged[1], merged[2]):
                part = _floats(a[PARTIALS] + 4 * (place * heads + head) * length, length)
                if part[1] > _ZERO:
                    weight = exp(part[0] - largest)
                    total += weight * part[1]
                    for i in range(length - 2):
                        joined[i] += weight * part[2 + i]
            share = _ONE / total if total > _ZERO else _ZERO
            for i in range(length - 2):
                joined[i] *= share
            place = (merged[0] * heads + head) * value_width * size
            _narrow(a[OUTPUT] + place, work, a[KIND], value_width)


def _attend(data: Any) -> None:
    _attend_tasks(carray(data, ARGUMENTS))


def _merge(data: Any) -> None:
    _merge_tokens(carray(data, ARGUMENTS))


ATTEND, MERGE = Body(_attend), Body(_merge)
