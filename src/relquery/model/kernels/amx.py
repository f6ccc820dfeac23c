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

from relquery.model.kernels.llvm import (
    BFLOAT16,
    I8,
    I64,
    IS_X86,
    Loop,
    fetch,
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
_HALF, _LINE, _FEWEST = 16, 64, 8
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
    ahead: Any,
    halves: Any,
    lines: Any,
) -> Any:
    """The products of `count` rows and of weights, and a bias added to them.

    result: bfloat16 (count, WIDTH). rows: (count, deep * DEEP). `result_row`, `row`: bytes from
    row to row. weights: (deep * DEEP / 2, WIDTH, 2). bias: float32 (WIDTH,). work: SUMS bytes.
    ahead: what begins to be read meanwhile, `lines` of LINE bytes for each DEEP inputs.
    halves: 1 for up to 16 rows, else 2. It and `lines` are literal.
    """
    used = range(halves.literal_value)
    fetched = range(lines.literal_value)

    def generate(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        if not _IS_HERE:
            return context.get_dummy_value()
        result, result_row, rows, row, count, weights, deep, bias, work, ahead = given[:10]
        line = I64(2 * _LINE)
        for half in used:
            for register in _SUMS[half]:
                _do(builder, f"tilezero %tmm{register}")
        with Loop(builder, deep, 1, {}) as loop:
            panel = moved(builder, weights, (loop.index, I64(_HALF * 2 * _LINE)))
            soon = moved(builder, ahead, (loop.index, I64(_LINE * len(fetched))))
            for number in fetched:
                fetch(builder, moved(builder, soon, offset=_LINE * number))
            for side, register in enumerate(_WEIGHTS):
                place = moved(builder, panel, offset=_LINE * side)
                _do(builder, f"tileloadd ($0,$1,1), %tmm{register}", place, line)
            for half in used:
                first = moved(builder, rows, (I64(_HALF * half), row))
                place = moved(builder, first, (loop.index, I64(_LINE)))
                _do(builder, f"tileloadd ($0,$1,1), %tmm{_ROWS[half]}", place, row)
                for side, register in enumerate(_WEIGHTS):
                    tiles = f"%tmm{register}, %tmm{_ROWS[half]}, %tmm{_SUMS[half][side]}"
                    _do(builder, f"tdpbf16ps {tiles}")
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

    return types.void(*[types.int64] * 10, halves, lines), generate


def _put(builder: Any, address: Any, value: Any) -> None:
    builder.store(value, builder.inttoptr(address, value.type.as_pointer()), align=1)


def _do(builder: Any, instruction: str, *numbers: Any) -> None:
    """An instruction with int64 operands."""
    shape = ir.FunctionType(ir.VoidType(), [I64] * len(numbers))
    operands = ",".join([*["r"] * len(numbers), "~{memory}"])
    builder.asm(shape, instruction, operands, list(numbers), True)
