"""Products of small matrices, whose sums stay in registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numba import types

from relquery.model.kernels.instructions.llvm import (
    F32,
    I64,
    LANES,
    WIDE,
    Loop,
    addresses,
    constant,
    fetch,
    instructions,
    load,
    load_pairs,
    moved,
    multiplied,
    splat,
    steps,
    store,
)

NOTHING, ONE, LINE = range(3)
"""What begins to be read while a tile is computed."""


def _sizes(paired: bool) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Sizes of tiles that stay in registers: rows, and vectors of each, from the largest to what
    remains.

    AVX-512 has 32 registers of a vector, AVX2 16 of half a vector: there a tile of 4 rows and 4
    vectors takes three times as long as these. Pairs that are widened need some for that.
    """
    if WIDE:
        return (4, (4, 2, 1)), (1, (4, 2, 1))
    if paired:
        return (4, (1,)), (2, (2, 1)), (1, (2, 1))
    return (6, (1,)), (4, (1,)), (2, (2, 1)), (1, (4, 2, 1))


@instructions
def add_scores(
    typing: Any,
    scores: Any,
    score_row: Any,
    keys: Any,
    rows: Any,
    columns: Any,
    column_row: Any,
    across: Any,
    count: Any,
    paired: Any,
    soon: Any,
    soon_step: Any,
    fetched: Any,
    adds: Any,
) -> Any:
    """The products of `rows` keys and of columns of queries, or these added to their scores.

    scores: float32 (rows, across), `score_row` bytes from row to row. keys: where the keys'
    addresses are. columns: (count, across), a line of queries for each number of a key,
    `column_row` bytes apart. across: a multiple of LANES. count: at least 1. paired: a number is
    a pair of bfloat16, instead of a float32. soon: what begins to be read meanwhile, `soon_step`
    bytes further for each line and four keys. The others are literal. fetched: of that, NOTHING,
    ONE line of the cache at a time, or as much as a LINE of a tile. adds: 0 if the scores begin at
    0.
    """
    how_much, begins_at_zero = fetched.literal_value, not adds.literal_value

    def generate(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        scores, score_row, keys, rows, columns, column_row, across, count, paired = given[:9]
        soon, soon_step = given[9:11]

        def multiply(row: Any, at: Any, tile: _Tile) -> None:
            lines = addresses(builder, moved(builder, keys, (row, I64(8))), tile.rows)
            begun = builder.mul(builder.udiv(row, I64(4)), count)
            first = moved(builder, soon, (begun, soon_step))
            if how_much == LINE:
                first = moved(builder, first, (at, I64(4)))
            tile.add(
                moved(builder, moved(builder, scores, (row, score_row)), (at, I64(4))),
                score_row,
                count,
                lambda one, index: moved(builder, lines[one], (index, I64(4))),
                lambda index: moved(builder, columns, (index, column_row)),
                at,
                begins_at_zero,
                {NOTHING: 0, ONE: 1, LINE: tile.vectors}[how_much],
                lambda index: moved(builder, first, (index, soon_step)),
            )

        _tiles(builder, rows, across, paired, multiply)
        return context.get_dummy_value()

    return types.void(
        *[types.int64] * 8, types.boolean, types.int64, types.int64, fetched, adds
    ), generate


@instructions
def add_outputs(
    typing: Any,
    outputs: Any,
    output_row: Any,
    rows: Any,
    weights: Any,
    weight_row: Any,
    values: Any,
    across: Any,
    count: Any,
    paired: Any,
) -> Any:
    """Add `count` values, weighted for each of `rows`, to their outputs.

    outputs: float32 (rows, across), `output_row` bytes from row to row. weights: (count, rows), a
    line for each value, `weight_row` bytes apart. values: where the values' addresses are. across,
    count, paired: as in `add_scores`, for weights and values.
    """

    def generate(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        outputs, output_row, rows, weights, weight_row, values, across, count, paired = given

        def value(index: Any) -> Any:
            place = moved(builder, values, (index, I64(8)))
            return builder.load(builder.inttoptr(place, I64.as_pointer()))

        def multiply(row: Any, at: Any, tile: _Tile) -> None:
            first = moved(builder, weights, (row, I64(4)))
            tile.add(
                moved(builder, moved(builder, outputs, (row, output_row)), (at, I64(4))),
                output_row,
                count,
                lambda one, index: moved(builder, first, (index, weight_row), offset=4 * one),
                value,
                at,
            )

        _tiles(builder, rows, across, paired, multiply)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 8, types.boolean), generate


class _Tile:
    """A tile of a matrix product: rows x (vectors x LANES) sums that stay in registers."""

    def __init__(self, builder: Any, rows: int, vectors: int, paired: bool) -> None:
        self._builder, self._paired = builder, paired
        self.rows, self.vectors = rows, vectors

    def add(
        self,
        sums: Any,
        step: Any,
        count: Any,
        one: Callable[[int, Any], Any],
        line: Callable[[Any], Any],
        at: Any,
        begins_at_zero: bool = False,
        fetched: int = 0,
        soon: Callable[[Any], Any] | None = None,
    ) -> None:
        """Add `count` products to sums, whose rows are `step` bytes apart, or to 0.

        one: where a row's number is, by row and index. line: where a line of numbers begins, by
        index; the tile's are from number `at` on. fetched: how many lines of the cache begin to be
        read with each, and soon: where, by index.
        """
        builder = self._builder
        places = {
            (row, vector): moved(builder, sums, (I64(row), step), offset=vector * LANES * 4)
            for row in range(self.rows)
            for vector in range(self.vectors)
        }
        before = dict.fromkeys(places, constant(F32, 0.0, LANES))
        if not begins_at_zero:
            before = {each: load(builder, place) for each, place in places.items()}
        with Loop(builder, count, 1, before) as loop:
            first = moved(builder, line(loop.index), (at, I64(4)))
            many = [
                self._load(moved(builder, first, offset=vector * LANES * 4), LANES)
                for vector in range(self.vectors)
            ]
            if soon is not None:
                place = soon(loop.index)
                for number in range(fetched):
                    fetch(builder, moved(builder, place, offset=number * LANES * 4))
            for row in range(self.rows):
                single = splat(builder, self._load(one(row, loop.index), 1))
                for vector, numbers in enumerate(many):
                    total = multiplied(builder, single, numbers, loop.sums[row, vector])
                    loop.add((row, vector), total)
        for each, place in places.items():
            store(builder, loop.results[each], place)

    def _load(self, place: Any, lanes: int) -> Any:
        """Float32 numbers, or pairs of bfloat16 numbers as int32."""
        if self._paired:
            return load_pairs(self._builder, place, lanes)
        return load(self._builder, place, lanes=lanes)


def _tiles(
    builder: Any, rows: Any, across: Any, paired: Any, fill: Callable[[Any, Any, _Tile], None]
) -> None:
    """Instructions that fill a matrix (rows, across) in tiles. fill: by first row and column."""

    def fill_all(paired: bool) -> None:
        first = I64(0)
        for down, sizes in _sizes(paired):
            last = builder.sub(rows, builder.urem(builder.sub(rows, first), I64(down)))
            with steps(builder, first, last, down) as row:
                left = I64(0)
                for vectors in sizes:
                    right = builder.and_(across, I64(-vectors * LANES))
                    with steps(builder, left, right, vectors * LANES) as at:
                        fill(row, at, _Tile(builder, down, vectors, paired))
                    left = right
            first = last

    with builder.if_else(paired) as (pairs, numbers):
        with pairs:
            fill_all(True)
        with numbers:
            fill_all(False)
