"""What a decoder computes before and between its matrix products, row by row, in one pass each.

Numbers are rounded to the network's type where `transformers` rounds them, except that rotation
happens in float32.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from relquery.arrays import Int64s
from relquery.model.kernels.compiled import (
    Float,
    Floats,
    compiled,
    floats,
    integers,
    padded,
)
from relquery.model.kernels.elementwise import add_row, gate, read_row, turn_pairs, weigh_row
from relquery.model.kernels.instructions.llvm import FLOAT32
from relquery.model.kernels.instructions.vectors import (
    copy_bytes,
    float_of_bits,
    take_number,
)
from relquery.model.kernels.threads import Body

AT_ONCE = 8
"""Rows that a thread takes at a time."""

# Arguments of all bodies here: addresses unless said otherwise.
(
    NEXT,  # the next row
    TICKET,  # the next thread's number
    KIND,
    ROWS,
    WIDTH,  # of a row
    WORK,  # memory of the threads, work_bytes(WIDTH) each
    SOURCE,
    RESULT,
    EPSILON,  # bits of a float32
    # look up
    TOKENS,  # (rows,): which rows of the source
    # normalize
    ADDED,  # to the source, in place, before; 0 for nothing
    WEIGHT,  # (width,) in float32
    # rotate
    HEADS,
    KV_HEADS,
    QUERY_WEIGHT,  # (head's width,) in float32; 0 if heads are not normalized
    KEY_WEIGHT,
    COSINES,  # (positions, HALF)
    SINES,
    HALF,  # of the rotated dimensions; 0 for none
    POSITIONS,  # (rows,)
    SLOTS,  # (rows,); from SCRATCH_FROM on in the step's own store
    SCRATCH_FROM,
    KEYS,  # (kv heads, STORE, width)
    VALUES,
    STORE,
    OWN_KEYS,
    OWN_VALUES,
    OWN_STORE,
    # activate
    ACTIVATION,
    ARGUMENTS,
) = range(30)
OWN = OWN_KEYS, OWN_VALUES, OWN_STORE

_ONE = np.float32(1)


@cache
def work_bytes(width: int) -> int:
    """Memory that a thread needs."""
    return 4 * int(padded(width))


@compiled
def _scale(a: Int64s, squares: Float, width: int) -> Float:
    """One over the root of the mean square (RMSNorm, Zhang and Sennrich 2019)."""
    mean = squares / np.float32(width)
    return np.float32(_ONE / np.sqrt(mean + float_of_bits(np.int32(a[EPSILON]))))


@compiled
def _normalize_row(a: Int64s, row: int, numbers: Floats) -> None:
    kind, width, place = a[KIND], a[WIDTH], numbers.ctypes.data
    line = row * width * _size(kind)
    if a[ADDED] == 0:
        squares = read_row(place, a[SOURCE] + line, kind, width)
    else:
        squares = add_row(a[SOURCE] + line, a[ADDED] + line, place, kind, width)
    scale = _scale(a, squares, width)
    weigh_row(a[RESULT] + line, place, a[WEIGHT], scale, kind, width)


@compiled
def _rotate_head(
    a: Int64s, source: int, target: int, weight: int, angle: int, numbers: Floats
) -> None:
    """Normalize a head if there is a weight, and rotate it. angle: number of the first pair's."""
    kind, half, width, place = a[KIND], a[HALF], len(numbers), numbers.ctypes.data
    size = _size(kind)
    if weight != 0:
        scale = _scale(a, read_row(place, source, kind, width), width)
        weigh_row(target, place, weight, scale, kind, width)
        source = target
    cosines, sines = a[COSINES] + 4 * angle, a[SINES] + 4 * angle
    over, rest = half * size, 2 * half * size
    turn_pairs(target, target + over, source, source + over, cosines, sines, kind, half)
    if weight == 0 and 2 * half < width:
        copy_bytes(target + rest, source + rest, width * size - rest)


@compiled
def _rotate_row(a: Int64s, row: int, numbers: Floats) -> None:
    """Queries to the result; keys and values to their slot."""
    heads, kv_heads = a[HEADS], a[KV_HEADS]
    width = a[WIDTH] // (heads + 2 * kv_heads)
    line, head_numbers = width * _size(a[KIND]), numbers[:width]
    angle = a[HALF] * integers(a[POSITIONS] + 8 * row, 1)[0]
    source, target = a[SOURCE] + row * (heads + 2 * kv_heads) * line, a[RESULT] + row * heads * line
    for _ in range(heads):
        _rotate_head(a, source, target, a[QUERY_WEIGHT], angle, head_numbers)
        source, target = source + line, target + line
    keys, values, store = a[KEYS], a[VALUES], a[STORE]
    slot = integers(a[SLOTS] + 8 * row, 1)[0]
    if slot >= a[SCRATCH_FROM]:
        keys, values, store = a[OWN_KEYS], a[OWN_VALUES], a[OWN_STORE]
        slot -= a[SCRATCH_FROM]
    for head in range(kv_heads):
        offset = (head * store + slot) * line
        _rotate_head(a, source, keys + offset, a[KEY_WEIGHT], angle, head_numbers)
        copy_bytes(values + offset, source + kv_heads * line, line)
        source += line


@compiled
def _look_up_row(a: Int64s, row: int) -> None:
    line = a[WIDTH] * _size(a[KIND])
    token = integers(a[TOKENS] + 8 * row, 1)[0]
    copy_bytes(a[RESULT] + row * line, a[SOURCE] + token * line, line)


@compiled
def _activate_row(a: Int64s, row: int) -> None:
    """Of gate and up, next to each other: activation(gate) * up."""
    kind, width = a[KIND], a[WIDTH]
    line = width * _size(kind)
    gates = a[SOURCE] + 2 * row * line
    gate(a[RESULT] + row * line, gates, gates + line, a[ACTIVATION], kind, width)


@compiled
def _size(kind: int) -> int:
    """Bytes of a number."""
    return 4 if kind == FLOAT32 else 2


@compiled
def _work(a: Int64s) -> Floats:
    """A row in the memory of the thread that calls it."""
    number = take_number(a.ctypes.data + 8 * TICKET)
    return floats(a[WORK] + 4 * padded(a[WIDTH]) * number, a[WIDTH])


@compiled
def _take_rows(a: Int64s) -> tuple[int, int]:
    first = take_number(a.ctypes.data + 8 * NEXT) * AT_ONCE
    return first, min(first + AT_ONCE, a[ROWS])


def _look_up(place: Any) -> None:
    a = integers(place, ARGUMENTS)
    first, stop = _take_rows(a)
    while first < stop:
        for row in range(first, stop):
            _look_up_row(a, row)
        first, stop = _take_rows(a)


def _normalize(place: Any) -> None:
    a = integers(place, ARGUMENTS)
    numbers = _work(a)
    first, stop = _take_rows(a)
    while first < stop:
        for row in range(first, stop):
            _normalize_row(a, row, numbers)
        first, stop = _take_rows(a)


def _rotate(place: Any) -> None:
    a = integers(place, ARGUMENTS)
    numbers = _work(a)
    first, stop = _take_rows(a)
    while first < stop:
        for row in range(first, stop):
            _rotate_row(a, row, numbers)
        first, stop = _take_rows(a)


def _gate(place: Any) -> None:
    a = integers(place, ARGUMENTS)
    first, stop = _take_rows(a)
    while first < stop:
        for row in range(first, stop):
            _activate_row(a, row)
        first, stop = _take_rows(a)


LOOK_UP, NORMALIZE, ROTATE, ACTIVATE = map(Body, (_look_up, _normalize, _rotate, _gate))
