"""Vector instructions for compiled loops: 16 float32 numbers at a time, at given addresses.

For addresses and kinds see llvm.py. Arguments marked as literal must be constants where compiled
code calls these functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from relquery.model.kernels.instructions.llvm import (
    BFLOAT16,
    BYTES,
    F32,
    FLOAT32,
    I8,
    I32,
    I64,
    LANES,
    Loop,
    addresses,
    along,
    by_kind,
    constant,
    fetch,
    fused,
    instructions,
    load,
    load_pairs,
    many,
    moved,
    multiplied,
    pair,
    splat,
    steps,
    store,
    sums_of,
)

LINE = 64
"""Bytes that are read from memory at a time."""


@instructions
def pointer(typing: Any, address: Any) -> Any:
    """The address as a pointer, for `carray`."""

    def generate(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        return builder.inttoptr(given[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.int64), generate


@instructions
def take_number(typing: Any, address: Any) -> Any:
    """Return the int64 at an address and add one to it, as one step among threads."""

    def generate(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        place = builder.inttoptr(given[0], I64.as_pointer())
        return builder.atomic_rmw("add", place, I64(1), "seq_cst")

    return types.int64(types.int64), generate


@instructions
def float_of_bits(typing: Any, bits: Any) -> Any:
    """The float32 with these bits, an int32."""

    def generate(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        return builder.bitcast(given[0], F32)

    return types.float32(types.int32), generate


@instructions
def widen(typing: Any, target: Any, source: Any, kind: Any, count: Any) -> Any:
    """Copy numbers of a kind to float32."""
    return types.void(*[types.int64] * 4), _copy(to_float=True)


@instructions
def narrow(typing: Any, target: Any, source: Any, kind: Any, count: Any) -> Any:
    """Round float32 numbers to a kind."""
    return types.void(*[types.int64] * 4), _copy(to_float=False)


def _copy(*, to_float: bool) -> Any:
    """Instructions that copy numbers between a kind and float32, LANES at a time, then the rest."""

    def generate(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        target, source, kind, count = given

        def copy(kind: int) -> None:
            from_kind, to_kind = (kind, FLOAT32) if to_float else (FLOAT32, kind)

            def step(index: Any, lanes: int) -> None:
                read = moved(builder, source, (index, I64(BYTES[from_kind])))
                write = moved(builder, target, (index, I64(BYTES[to_kind])))
                store(builder, load(builder, read, from_kind, lanes), write, to_kind, lanes)

            along(builder, count, step)

        by_kind(builder, kind, copy)
        return context.get_dummy_value()

    return generate


@instructions
def largest(typing: Any, numbers: Any, kind: Any, count: Any) -> Any:
    """Of `count` numbers of a kind; -inf if there is none. NaN counts for nothing."""

    def generate(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        numbers, kind, count = given
        keep: Any = cgutils.alloca_once_value
        nothing = float("-inf")
        found = {lanes: keep(builder, constant(F32, nothing, lanes)) for lanes in (LANES, 1)}

        def of_kind(kind: int) -> None:
            def compare(index: Any, lanes: int) -> None:
                place = moved(builder, numbers, (index, I64(BYTES[kind])))
                number, before = load(builder, place, kind, lanes), builder.load(found[lanes])
                is_larger = builder.fcmp_ordered(">", number, before)
                builder.store(builder.select(is_larger, number, before), found[lanes])

            for lanes, slot in found.items():
                builder.store(constant(F32, nothing, lanes), slot)
            along(builder, count, compare)

        by_kind(builder, kind, of_kind)
        best = builder.load(found[1])
        for lane in range(LANES):
            number = builder.extract_element(builder.load(found[LANES]), I32(lane))
            best = builder.select(builder.fcmp_ordered(">", number, best), number, best)
        return best

    return types.float32(*[types.int64] * 3), generate


@instructions
def copy_bytes(typing: Any, target: Any, source: Any, count: Any) -> Any:
    """Copy bytes to a place that does not overlap."""

    def generate(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        copy: Any = cgutils.raw_memcpy
        copy(builder, *[builder.inttoptr(each, I8.as_pointer()) for each in given[:2]], given[2], 1)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), generate


@instructions
def prefetch(typing: Any, listed: Any, count: Any, size: Any) -> Any:
    """Begin to read `size` bytes at each of `count` addresses; `count` is literal.

    listed: where the addresses are.
    """
    many_of_them = count.literal_value

    def generate(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        listed, _, size = given
        places = addresses(builder, listed, many_of_them)
        with steps(builder, I64(0), size, LINE) as offset:
            for address in places:
                fetch(builder, builder.add(address, offset))
        return context.get_dummy_value()

    return types.void(types.int64, count, types.int64), generate


@instructions
def prefetch_line(typing: Any, address: Any, size: Any) -> Any:
    """Begin to read `size` bytes at an address."""

    def generate(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        with steps(builder, I64(0), given[1], LINE) as offset:
            fetch(builder, builder.add(given[0], offset))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@instructions
def pair_rows(typing: Any, target: Any, first: Any, second: Any, count: Any) -> Any:
    """Write two lines of bfloat16 numbers as pairs; `count` is a multiple of LANES."""

    def generate(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        target, *lines, count = given
        with steps(builder, I64(0), count, LANES) as index:
            places = [moved(builder, line, (index, I64(BYTES[BFLOAT16]))) for line in lines]
            bits = [builder.bitcast(load(builder, x, BFLOAT16), many(I32, LANES)) for x in places]
            pairs = builder.bitcast(pair(builder, *bits), many(F32, LANES))
            store(builder, pairs, moved(builder, target, (index, I64(4))))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), generate


@instructions
def transpose(typing: Any, target: Any, target_row: Any, source: Any, source_row: Any) -> Any:
    """Write a matrix (LANES, LANES) of 4-byte numbers with rows and columns exchanged.

    target_row, source_row: bytes from row to row.
    """

    def generate(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        target, target_row, source, source_row = given
        rows = [load(builder, moved(builder, source, (I64(at), source_row))) for at in range(LANES)]
        step = 1
        while step < LANES:  # exchange two of four quarters, in ever larger squares
            for at in (at for at in range(LANES) if not at & step):
                pair_of_rows = rows[at], rows[at + step]
                for offset in (0, step):
                    lanes = [
                        lane + offset if not lane & step else LANES + lane - step + offset
                        for lane in range(LANES)
                    ]
                    chosen = ir.Constant(many(I32, LANES), lanes)
                    rows[at + offset] = builder.shuffle_vector(*pair_of_rows, chosen)
            step *= 2
        for at, row in enumerate(rows):
            store(builder, row, moved(builder, target, (I64(at), target_row)))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), generate


@instructions
def dots(
    typing: Any, scores: Any, step: Any, query: Any, keys: Any, width: Any, kind: Any, rows: Any
) -> Any:
    """The dot products of a float32 query with `rows` keys of a kind, a multiple of four.

    scores: where the first goes, `step` bytes before the next. keys: where the keys' addresses are.
    width: numbers in each, a multiple of LANES. `rows` is literal.
    """
    down = rows.literal_value

    def generate(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        scores, step, query, keys, width, kind = given[:6]
        lines = addresses(builder, keys, down)
        zeros = dict.fromkeys(range(down), constant(F32, 0.0, LANES))

        def multiply(kind: int) -> None:
            with Loop(builder, width, LANES, zeros) as loop:
                numbers = load(builder, moved(builder, query, (loop.index, I64(4))))
                for row, line in enumerate(lines):
                    place = moved(builder, line, (loop.index, I64(BYTES[kind])))
                    key = load(builder, place, kind)
                    loop.add(row, fused(builder, key, numbers, loop.sums[row]))
            _store_sums(builder, loop, scores, step)

        by_kind(builder, kind, multiply)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6, rows), generate


@instructions
def dots_of_pairs(
    typing: Any, scores: Any, step: Any, query: Any, keys: Any, width: Any, rows: Any
) -> Any:
    """`dots` where query and keys are bfloat16, two numbers at a time.

    width: a multiple of 2 * LANES.
    """
    down = rows.literal_value

    def generate(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        scores, step, query, keys, width = given[:5]
        lines = addresses(builder, keys, down)
        zeros = dict.fromkeys(range(down), constant(F32, 0.0, LANES))

        def pairs(line: Any, index: Any) -> Any:
            return load_pairs(builder, moved(builder, line, (index, I64(BYTES[BFLOAT16]))))

        with Loop(builder, width, 2 * LANES, zeros) as loop:
            numbers = pairs(query, loop.index)
            for row, line in enumerate(lines):
                key = pairs(line, loop.index)
                loop.add(row, multiplied(builder, key, numbers, loop.sums[row]))
        _store_sums(builder, loop, scores, step)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5, rows), generate


def _store_sums(builder: Any, loop: Loop, scores: Any, step: Any) -> None:
    """Instructions that write the sum of each of a loop's results, `step` bytes apart."""
    totals = sums_of(builder, [loop.results[row] for row in sorted(loop.results)])
    for row, total in enumerate(totals):
        store(builder, total, moved(builder, scores, (I64(row), step)), lanes=1)


@instructions
def add_rows(
    typing: Any, sums: Any, weights: Any, step: Any, values: Any, width: Any, kind: Any, rows: Any
) -> Any:
    """Add `rows` weighted values of a kind to float32 sums.

    weights: where the first is, `step` bytes before the next. values: where their addresses are.
    width: numbers in each, a multiple of LANES. `rows` is literal.
    """
    down = rows.literal_value

    def generate(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        sums, weights, step, values, width, kind = given[:6]
        lines = addresses(builder, values, down)
        places = [moved(builder, weights, (I64(row), step)) for row in range(down)]
        shares = [splat(builder, load(builder, place, lanes=1)) for place in places]

        def add(kind: int) -> None:
            with Loop(builder, width, LANES, {}) as loop:
                place = moved(builder, sums, (loop.index, I64(4)))
                total = load(builder, place)
                for share, line in zip(shares, lines, strict=True):
                    where = moved(builder, line, (loop.index, I64(BYTES[kind])))
                    total = fused(builder, share, load(builder, where, kind), total)
                store(builder, total, place)

        by_kind(builder, kind, add)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6, rows), generate
