"""Products of bfloat16 matrices by AMX, whose registers hold tiles of 16 rows (Intel's manual of
instructions, chapter on AMX).

LLVM has no vectors for such registers, so the instructions are written as assembly. 64 rows take a
fifth of the time that pairs in vectors take; see tiles.py for those.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

from llvmlite import binding, ir
from numba import types

from relquery.model.kernels.instructions.llvm import (
    BFLOAT16,
    I8,
    I64,
    IS_X86,
    Loop,
    instructions,
    load,
    moved,
    steps,
    store,
)

ROWS = 32
"""Rows of a product at a time, two tiles."""
WIDTH = 32
"""Outputs at a time, two tiles; their weights are next to each other for each pair of inputs."""
DEEP = 32
"""Inputs that a tile holds."""
CONFIGURATION = 64
"""Bytes that say how large each register's tile is."""
SUMS = ROWS * WIDTH * 4
"""Bytes for the sums of a product."""

_FEATURES = binding.get_host_cpu_features()
_HALF, _LINE = 16, 64
_SUMS, _ROWS, _WEIGHTS = ((0, 1), (2, 3)), (4, 5), (6, 7)
_IS_HERE = IS_X86 and all(_FEATURES.get(name) for name in ("amx-tile", "amx-bf16"))
if _IS_HERE:
    binding.initialize_native_asmparser()
_SYSTEM_CALL, _ASK, _TILE_DATA = 158, 0x1023, 18


@cache
def can_tile() -> bool:
    """Whether the machine has AMX, and the system lets this process use it."""
    if not _IS_HERE:
        return False
    try:
        return bool(ctypes.CDLL(None).syscall(_SYSTEM_CALL, _ASK, _TILE_DATA) == 0)
    except (OSError, AttributeError):
        return False


@instructions
def set_tiles(typing: Any, work: Any, rows: Any) -> Any:
    """Let registers hold tiles of so many rows, at most ROWS. work: CONFIGURATION bytes."""

    def generate(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        if not _IS_HERE:
            return context.get_dummy_value()
        work, rows = given
        for offset in range(0, CONFIGURATION, 8):
            _put(builder, moved(builder, work, offset=offset), I64(0))
        _put(builder, work, I8(1))  # the only way to divide the registers
        is_more = builder.icmp_signed(">", rows, I64(_HALF))
        first = builder.select(is_more, I64(_HALF), rows)
        second = builder.select(is_more, builder.sub(rows, I64(_HALF)), I64(1))  # 0 is refused
        counts = dict.fromkeys(_WEIGHTS, I64(_HALF))
        for count, sums, register in zip((first, second), _SUMS, _ROWS, strict=True):
            counts |= dict.fromkeys((*sums, register), count)
        for register, count in counts.items():
            _put(builder, moved(builder, work, offset=16 + 2 * register), ir.IntType(16)(_LINE))
            place = moved(builder, work, offset=48 + register)
            _put(builder, place, builder.trunc(count, I8))
        _do(builder, "ldtilecfg ($0)", work)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@instructions
def end_tiles(typing: Any) -> Any:
    """Let go of the registers: a thread that holds them is slower to stop and to go on."""

    def generate(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        if _IS_HERE:
            _do(builder, "tilerelease")
        return context.get_dummy_value()

    return types.void(), generate


@instructions
def multiply_tiles(
    typing: Any,
    result: Any,
    result_row: Any,
    rows: Any,
    row: Any,
    count: Any,
    weights: Any,
    deep: Any,
    bias: Any,
    work: Any,
    halves: Any,
) -> Any:
    """The products of `count` rows and of weights, and a bias added to them.

    result: bfloat16 (count, WIDTH). rows: (count, deep * DEEP). `result_row`, `row`: bytes from
    row to row. weights: (deep * DEEP / 2, WIDTH, 2). bias: float32 (WIDTH,). work: SUMS bytes.
    halves: 1 for up to 16 rows, else 2; literal. Processors read ahead by themselves as fast.
    """
    used = range(halves.literal_value)

    def generate(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        if not _IS_HERE:
            return context.get_dummy_value()
        result, result_row, rows, row, count, weights, deep, bias, work = given[:9]
        line = I64(2 * _LINE)
        for half in used:
            for register in _SUMS[half]:
                _do(builder, f"tilezero %tmm{register}")
        with Loop(builder, deep, 1, {}) as loop:
            _add_step(builder, loop.index, rows, row, weights, line, len(used), 2)
        for half in used:
            for side, register in enumerate(_SUMS[half]):
                place = moved(builder, work, offset=2 * _LINE * _HALF * half + _LINE * side)
                _do(builder, f"tilestored %tmm{register}, ($0,$1,1)", place, line)
        offsets = [_LINE * side for side in range(2)]
        added = [load(builder, moved(builder, bias, offset=offset)) for offset in offsets]
        with steps(builder, I64(0), count, 1) as index:
            source = moved(builder, work, (index, line))
            target = moved(builder, result, (index, result_row))
            for offset, more in zip(offsets, added, strict=True):
                total = builder.fadd(load(builder, moved(builder, source, offset=offset)), more)
                store(builder, total, moved(builder, target, offset=offset // 2), BFLOAT16)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 9, halves), generate


@instructions
def add_tiles(
    typing: Any,
    sums: Any,
    sum_row: Any,
    left: Any,
    left_row: Any,
    right: Any,
    right_row: Any,
    deep: Any,
    down: Any,
    across: Any,
    adds: Any,
) -> Any:
    """The product of two matrices, or this added to sums.

    sums: float32 (16 * down, 16 * across). left: (16 * down, deep * DEEP). right:
    (deep * DEEP / 2, 16 * across, 2). `sum_row`, `left_row`, `right_row`: bytes from row to row.
    Literal: down, across: 1 or 2; adds: 0 if the sums begin at 0. The registers hold whole tiles.
    """
    halves, sides, begins_at_zero = (
        range(down.literal_value),
        range(across.literal_value),
        not adds.literal_value,
    )

    def generate(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        if not _IS_HERE:
            return context.get_dummy_value()
        sums, sum_row, left, left_row, right, right_row, deep = given[:7]
        places = {}
        for half in halves:
            first = moved(builder, sums, (I64(_HALF * half), sum_row))
            for side in sides:
                places[_SUMS[half][side]] = moved(builder, first, offset=_LINE * side)
        for register, place in places.items():
            if begins_at_zero:
                _do(builder, f"tilezero %tmm{register}")
            else:
                _do(builder, f"tileloadd ($0,$1,1), %tmm{register}", place, sum_row)
        with Loop(builder, deep, 1, {}) as loop:
            _add_step(
                builder, loop.index, left, left_row, right, right_row, len(halves), len(sides)
            )
        for register, place in places.items():
            _do(builder, f"tilestored %tmm{register}, ($0,$1,1)", place, sum_row)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 7, down, across, adds), generate


def _add_step(
    builder: Any,
    index: Any,
    left: Any,
    left_row: Any,
    right: Any,
    right_row: Any,
    down: int,
    across: int,
) -> None:
    """Add the products of the tiles at a step of DEEP inputs to the sums."""
    lines = moved(builder, right, (index, builder.mul(right_row, I64(_HALF))))
    for side in range(across):
        place = moved(builder, lines, offset=_LINE * side)
        _do(builder, f"tileloaddt1 ($0,$1,1), %tmm{_WEIGHTS[side]}", place, right_row)
    for half in range(down):
        first = moved(builder, left, (I64(_HALF * half), left_row))
        place = moved(builder, first, (index, I64(_LINE)))
        _do(builder, f"tileloadd ($0,$1,1), %tmm{_ROWS[half]}", place, left_row)
        for side in range(across):
            tiles = f"%tmm{_WEIGHTS[side]}, %tmm{_ROWS[half]}, %tmm{_SUMS[half][side]}"
            _do(builder, f"tdpbf16ps {tiles}")


def _put(builder: Any, address: Any, value: Any) -> None:
    builder.store(value, builder.inttoptr(address, value.type.as_pointer()), align=1)


def _do(builder: Any, instruction: str, *numbers: Any) -> None:
    """An instruction with int64 operands."""
    shape = ir.FunctionType(ir.VoidType(), [I64] * len(numbers))
    operands = ",".join([*["r"] * len(numbers), "~{memory}"])
    builder.asm(shape, instruction, operands, list(numbers), True)
