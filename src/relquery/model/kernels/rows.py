"""What a decoder computes between its matrix products, row by row, in one pass each.

Numbers are rounded to the network's type where `transformers` rounds them, except that rotation
happens in float32.
"""

from __future__ import annotations

import math
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
    reordered,
)
from relquery.model.kernels.elementary import exp
from relquery.model.kernels.llvm import FLOAT32
from relquery.model.kernels.threads import Body
from relquery.model.kernels.vectors import float_of_bits, narrow, take_number, widen

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
) = range(29)

SILU, GELU_TANH = range(2)
"""Activations."""

_ZERO, _ONE, _TWO = (np.float32(each) for each in range(3))
_LARGEST = np.float32(87)
_ROOT_TWO_OVER_PI = np.float32(math.sqrt(2 / math.pi))
_GELU_CUBE = np.float32(0.044715)


def work_bytes(width: int) -> int:
    """Memory that a thread needs."""
    return 2 * 4 * int(padded(width))


@compiled
def _round(numbers: Floats, place: int, kind: int) -> None:
    """Round numbers to a kind and leave them at a place too."""
    narrow(place, numbers.ctypes.data, kind, len(numbers))
    if kind != FLOAT32:
        widen(numbers.ctypes.data, place, kind, len(numbers))


@reordered
def _scale(numbers: Floats, epsilon: Float) -> None:
    """Divide by the root of the mean square (RMSNorm, Zhang and Sennrich 2019)."""
    total = _ZERO
    for number in numbers:
        total += number * number
    scale = _ONE / np.sqrt(total / np.float32(len(numbers)) + epsilon)
    for at in range(len(numbers)):
        numbers[at] *= scale


@compiled
def _weigh(numbers: Floats, weight: int) -> None:
    weights = floats(weight, len(numbers))
    for at in range(len(numbers)):
        numbers[at] *= weights[at]


@compiled
def _normalize_row(a: Int64s, row: int, numbers: Floats, added: Floats) -> None:
    kind, width = a[KIND], a[WIDTH]
    line = row * width * (4 if kind == FLOAT32 else 2)
    widen(numbers.ctypes.data, a[SOURCE] + line, kind, width)
    if a[ADDED] != 0:
        widen(added.ctypes.data, a[ADDED] + line, kind, width)
        for at in range(width):
            numbers[at] += added[at]
        _round(numbers, a[SOURCE] + line, kind)
    _scale(numbers, float_of_bits(np.int32(a[EPSILON])))
    _round(numbers, a[RESULT] + line, kind)
    _weigh(numbers, a[WEIGHT])
    narrow(a[RESULT] + line, numbers.ctypes.data, kind, width)


@compiled
def _turn(numbers: Floats, cosines: Floats, sines: Floats) -> None:
    """Rotate pairs of a head in place; the dimensions after them stay."""
    half = len(cosines)
    for pair in range(half):
        x, y = numbers[pair], numbers[pair + half]
        numbers[pair] = x * cosines[pair] - y * sines[pair]
        numbers[pair + half] = y * cosines[pair] + x * sines[pair]


@compiled
def _normalize_head(a: Int64s, numbers: Floats, place: int, weight: int) -> None:
    """Normalize a head; `place` is memory for it."""
    _scale(numbers, float_of_bits(np.int32(a[EPSILON])))
    _round(numbers, place, a[KIND])
    _weigh(numbers, weight)
    _round(numbers, place, a[KIND])


@compiled
def _rotate_row(a: Int64s, row: int, numbers: Floats) -> None:
    """Queries to the result; keys and values to their slot."""
    kind, heads, kv_heads, half = a[KIND], a[HEADS], a[KV_HEADS], a[HALF]
    width = a[WIDTH] // (heads + 2 * kv_heads)
    size = width * (4 if kind == FLOAT32 else 2)
    place = numbers.ctypes.data
    widen(place, a[SOURCE] + row * (heads + 2 * kv_heads) * size, kind, a[WIDTH])
    position, slot = integers(a[POSITIONS] + 8 * row, 1)[0], integers(a[SLOTS] + 8 * row, 1)[0]
    cosines = floats(a[COSINES] + 4 * half * position, half)
    sines = floats(a[SINES] + 4 * half * position, half)
    queries = a[RESULT] + row * heads * size
    for head in range(heads + kv_heads):
        line = numbers[head * width : (head + 1) * width]
        weight = a[QUERY_WEIGHT] if head < heads else a[KEY_WEIGHT]
        if weight != 0:
            _normalize_head(a, line, queries, weight)
        _turn(line, cosines, sines)
    narrow(queries, place, kind, heads * width)
    keys, values, store = a[KEYS], a[VALUES], a[STORE]
    if slot >= a[SCRATCH_FROM]:
        keys, values, store = a[OWN_KEYS], a[OWN_VALUES], a[OWN_STORE]
        slot -= a[SCRATCH_FROM]
    for head in range(kv_heads):
        target = (head * store + slot) * size
        narrow(keys + target, place + 4 * (heads + head) * width, kind, width)
        narrow(values + target, place + 4 * (heads + kv_heads + head) * width, kind, width)


@compiled
def _activate(gate: Floats, activation: int) -> None:
    if activation == SILU:
        for at in range(len(gate)):
            gate[at] = gate[at] / (_ONE + exp(min(-gate[at], _LARGEST)))
    else:
        for at in range(len(gate)):
            x = gate[at]
            inner = _ROOT_TWO_OVER_PI * (x + _GELU_CUBE * x * x * x)
            # 1 + tanh(z) = 2 / (1 + exp(-2z))
            gate[at] = x / (_ONE + exp(min(-_TWO * inner, _LARGEST)))


@compiled
def _activate_row(a: Int64s, row: int, gate: Floats, up: Floats) -> None:
    """Of gate and up, next to each other: activation(gate) * up."""
    kind, width = a[KIND], a[WIDTH]
    line = width * (4 if kind == FLOAT32 else 2)
    widen(gate.ctypes.data, a[SOURCE] + 2 * row * line, kind, width)
    widen(up.ctypes.data, a[SOURCE] + (2 * row + 1) * line, kind, width)
    _activate(gate, a[ACTIVATION])
    _round(gate, a[RESULT] + row * line, kind)
    for at in range(width):
        gate[at] *= up[at]
    narrow(a[RESULT] + row * line, gate.ctypes.data, kind, width)


@compiled
def _work(a: Int64s) -> tuple[Floats, Floats]:
    """Two rows in the memory of the thread that calls it."""
    wide = padded(a[WIDTH])
    place = a[WORK] + 2 * 4 * wide * take_number(a.ctypes.data + 8 * TICKET)
    return floats(place, a[WIDTH]), floats(place + 4 * wide, a[WIDTH])


@compiled
def _take_rows(a: Int64s) -> tuple[int, int]:
    first = take_number(a.ctypes.data + 8 * NEXT) * AT_ONCE
    return first, min(first + AT_ONCE, a[ROWS])


def _normalize(place: Any) -> None:
    a = integers(place, ARGUMENTS)
    numbers, added = _work(a)
    first, stop = _take_rows(a)
    while first < stop:
        for row in range(first, stop):
            _normalize_row(a, row, numbers, added)
        first, stop = _take_rows(a)


def _rotate(place: Any) -> None:
    a = integers(place, ARGUMENTS)
    numbers, _ = _work(a)
    first, stop = _take_rows(a)
    while first < stop:
        for row in range(first, stop):
            _rotate_row(a, row, numbers)
        first, stop = _take_rows(a)


def _gate(place: Any) -> None:
    a = integers(place, ARGUMENTS)
    gate, up = _work(a)
    first, stop = _take_rows(a)
    while first < stop:
        for row in range(first, stop):
            _activate_row(a, row, gate, up)
        first, stop = _take_rows(a)


NORMALIZE, ROTATE, ACTIVATE = Body(_normalize), Body(_rotate), Body(_gate)
