"""Softmax over scores that come in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numba import types

from relquery.model.kernels.instructions.elementary import exponential, rough_exponential
from relquery.model.kernels.instructions.llvm import (
    F32,
    I32,
    I64,
    LANES,
    Loop,
    constant,
    instructions,
    load,
    many,
    moved,
    pair,
    steps,
    store,
)

TOGETHER = 4, 2, 1
"""Vectors of rows that are softened together, from the most to what remains."""


@instructions
def soften(
    typing: Any,
    scores: Any,
    count: Any,
    across: Any,
    maxima: Any,
    sums: Any,
    factors: Any,
    paired: Any,
) -> Any:
    """Replace scores by their exponentials, counted from each row's new maximum.

    scores: (count, across), a line of rows for each key; across: a multiple of LANES. maxima, sums:
    (across,) of what the rows have seen before, and what they have seen then. factors: (across,) by
    which earlier sums and outputs shrink. paired: whether the exponentials are rounded to bfloat16
    and written two by two, as lines (count / 2, across) of pairs; then `count` is even.
    """

    def generate(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        scores, count, across, maxima, sums, factors, paired = given
        line = builder.mul(across, I64(4))
        left = I64(0)
        for vectors in TOGETHER:
            right = builder.and_(across, I64(-vectors * LANES))
            with steps(builder, left, right, vectors * LANES) as first:
                rows = _Rows(builder, scores, line, count, first, vectors)
                safe = rows.shrink(maxima, sums, factors)
                with builder.if_else(paired) as (pairs, numbers):
                    with pairs:
                        rows.weigh(safe, sums, paired=True)
                    with numbers:
                        rows.weigh(safe, sums, paired=False)
            left = right
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6, types.boolean), generate


class _Rows:
    """Neighbouring rows, (vectors x LANES) from `first` on, of scores (count, rows).

    line: bytes from key to key.
    """

    def __init__(
        self, builder: Any, scores: Any, line: Any, count: Any, first: Any, vectors: int
    ) -> None:
        self._builder, self._line, self._count, self._first = builder, line, count, first
        self._scores = [self._place(scores, vector) for vector in range(vectors)]

    def shrink(self, maxima: Any, sums: Any, factors: Any) -> list[Any]:
        """Update maxima, write factors and shrink sums by them; returns finite maxima."""
        builder = self._builder
        before = [load(builder, self._place(maxima, each)) for each in self._each]
        with Loop(builder, self._count, 1, dict(enumerate(before))) as loop:
            for each in self._each:
                score = load(builder, moved(builder, self._scores[each], (loop.index, self._line)))
                loop.add(each, _larger(builder, score, loop.sums[each]))
        finite = []
        for each in self._each:
            largest = loop.results[each]
            store(builder, largest, self._place(maxima, each))
            nothing = builder.fcmp_ordered("==", largest, constant(F32, float("-inf"), LANES))
            largest = builder.select(nothing, constant(F32, 0.0, LANES), largest)
            factor = exponential(builder, builder.fsub(before[each], largest), LANES)
            store(builder, factor, self._place(factors, each))
            place = self._place(sums, each)
            store(builder, builder.fmul(load(builder, place), factor), place)
            finite.append(largest)
        return finite

    def weigh(self, largest: Sequence[Any], sums: Any, *, paired: bool) -> None:
        """Replace scores by exponentials, and add these to the sums."""
        builder, step = self._builder, 2 if paired else 1
        totals = {each: load(builder, self._place(sums, each)) for each in self._each}
        with Loop(builder, self._count, step, totals) as loop:
            target = builder.udiv(loop.index, I64(step))
            for each in self._each:
                total, weights = loop.sums[each], []
                for key in range(step):
                    place = moved(builder, self._scores[each], (loop.index, self._line))
                    score = load(builder, builder.add(place, builder.mul(I64(key), self._line)))
                    if paired:
                        weights.append(rough_exponential(builder, score, largest[each]))
                    else:
                        above = builder.fsub(score, largest[each])
                        weights.append(exponential(builder, above, LANES))
                    total = builder.fadd(total, weights[-1])
                loop.add(each, total)
                place = moved(builder, self._scores[each], (target, self._line))
                if paired:
                    # Rounded to the nearest; halves up, which takes fewer instructions.
                    half, kind = constant(I32, 0x8000, LANES), many(I32, LANES)
                    bits = [builder.add(builder.bitcast(x, kind), half) for x in weights]
                    store(builder, builder.bitcast(pair(builder, *bits), many(F32, LANES)), place)
                else:
                    store(builder, weights[0], place)
        for each in self._each:
            store(builder, loop.results[each], self._place(sums, each))

    @property
    def _each(self) -> range:
        return range(len(self._scores))

    def _place(self, numbers: Any, vector: int) -> Any:
        return moved(self._builder, numbers, (self._first, I64(4)), offset=4 * LANES * vector)


def _larger(builder: Any, a: Any, b: Any) -> Any:
    """The larger of the two; b if a is NaN."""
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)
