"""Rotating queries and keys by how much later keys are used than computed."""

from __future__ import annotations

from relquery.arrays import Int64s
from relquery.model.kernels.attention.arguments import (
    COSINES,
    HALF,
    INTERLEAVED,
    NO_SHIFT,
    SINES,
    TURN_KEYS,
)
from relquery.model.kernels.attention.state import Rows, Shape, Visit, Work
from relquery.model.kernels.compiled import Floats, compiled, floats


@compiled
def turns_keys(a: Int64s, visit: Visit) -> bool:
    """Whether the keys of a visit are rotated."""
    return bool(a[COSINES] != 0 and a[TURN_KEYS] != 0 and visit.shift != NO_SHIFT)


@compiled
def turns_queries(a: Int64s, visit: Visit) -> bool:
    """Whether the queries of a visit are rotated."""
    return bool(a[COSINES] != 0 and a[TURN_KEYS] == 0 and visit.shift != NO_SHIFT)


@compiled
def turn(target: Floats, source: Floats, a: Int64s, shift: int, back: bool) -> None:
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
def turn_queries(a: Int64s, shape: Shape, work: Work, rows: Rows, visit: Visit) -> None:
    """Rotate a visit's queries back by its shift, from `queries` to `turned`."""
    for row in range(visit.first, visit.first + visit.rows):
        shift = visit.shift if visit.shift >= 0 else rows.shifts[row // shape.group]
        target = floats(work.turned + 4 * row * shape.wide, shape.wide)
        turn(target, floats(work.queries + 4 * row * shape.wide, shape.wide), a, shift, True)
