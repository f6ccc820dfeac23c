"""Elementary functions of float32 numbers that compile to vector code; numba's own do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import types

from relquery.model.kernels.compiled import Float, Floats, compiled
from relquery.model.kernels.instructions.llvm import (
    F32,
    I32,
    LANES,
    constant,
    declared,
    fused,
    instructions,
    many,
)

LEAST = -87.0
"""Where exp reaches the smallest normal float32."""
_LOG2_E = 1.44269504
_LN_2_HIGH, _LN_2_LOW = 0.693359375, -2.12194440e-4
_TO_INTEGER = 12582912.0  # 1.5 * 2**23: adding it rounds to an integer, in the lowest bits
_BITS_OF_IT = 0x4B400000
# Cephes, expf: minimax polynomial of (exp(x) - 1 - x) / x**2 on [-ln(2)/2, ln(2)/2].
_SERIES = (
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)
# Minimax polynomial of 2**x on [-1/2, 1/2], relative.
_SERIES_OF_2 = (9.570101947e-3, 5.591786159e-2, 2.402474484e-1, 6.931218146e-1, 9.999992614e-1)
SCALES = bool(binding.get_host_cpu_features().get("avx512f"))
"""Whether the processor multiplies by powers of two in one instruction."""
_ONE, _TWO, _ZERO = np.float32(1), np.float32(2), np.float32(0)


@instructions
def exp(typing: Any, x: Any) -> Any:
    """e**x of a float32 up to 88, within 1e-7 of it; 0 below LEAST."""

    def generate(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        return exponential(builder, given[0], 1)

    return types.float32(types.float32), generate


def exponential(builder: Any, x: Any, lanes: int) -> Any:
    """Instructions for `exp`, of one float32 or a vector. NaN stays NaN."""

    def number(value: float) -> Any:
        return constant(F32, value, lanes)

    low = builder.fcmp_ordered("<", x, number(LEAST))
    bounded = builder.select(low, number(LEAST), x)
    shifted = fused(builder, bounded, number(_LOG2_E), number(_TO_INTEGER))
    whole = builder.fsub(shifted, number(_TO_INTEGER))
    rest = fused(builder, whole, number(-_LN_2_HIGH), bounded)
    rest = fused(builder, whole, number(-_LN_2_LOW), rest)
    series = number(_SERIES[0])
    for coefficient in _SERIES[1:]:
        series = fused(builder, series, rest, number(coefficient))
    result = fused(builder, builder.fmul(series, rest), rest, rest)
    result = builder.fadd(result, number(1.0))
    bits = builder.bitcast(shifted, many(I32, lanes))
    exponent = builder.sub(bits, constant(I32, _BITS_OF_IT - 127, lanes))
    power = builder.bitcast(builder.shl(exponent, constant(I32, 23, lanes)), x.type)
    return builder.select(low, number(0.0), builder.fmul(result, power))


def rough_exponential(builder: Any, x: Any, least: Any) -> Any:
    """Instructions for e**(x - least) of vectors, up to 0; within 3e-6 of it. NaN stays NaN.

    For what is rounded to bfloat16: takes two thirds of what `exponential` takes, where the
    processor has AVX-512. least: finite.
    """
    if not SCALES:
        return exponential(builder, builder.fsub(x, least), LANES)

    def number(value: float) -> Any:
        return constant(F32, value, LANES)

    offset = builder.fmul(least, number(-_LOG2_E))  # outside of a loop, if `least` is
    power = fused(builder, x, number(_LOG2_E), offset)
    low = builder.fcmp_ordered("<", power, number(-200.0))  # also of -inf; becomes 0
    power = builder.select(low, number(-200.0), power)
    one = ir.FunctionType(power.type, [power.type])
    whole = builder.call(declared(builder, one, f"llvm.roundeven.v{LANES}f32"), [power])
    rest = builder.fsub(power, whole)
    series = number(_SERIES_OF_2[0])
    for coefficient in _SERIES_OF_2[1:]:
        series = fused(builder, series, rest, number(coefficient))
    shape = ir.FunctionType(power.type, [power.type] * 3 + [ir.IntType(16), I32])
    scale = declared(builder, shape, "llvm.x86.avx512.mask.scalef.ps.512")
    return builder.call(scale, [series, whole, series, ir.IntType(16)(-1), I32(4)])


def reciprocal(builder: Any, x: Any) -> Any:
    """Instructions for 1 / x of vectors, within 7e-5 of it; where the processor has AVX-512."""
    shape = ir.FunctionType(x.type, [x.type, x.type, ir.IntType(16)])
    near = declared(builder, shape, "llvm.x86.avx512.rcp14.ps.512")
    return builder.call(near, [x, x, ir.IntType(16)(-1)])


@compiled
def cap_in_place(numbers: Floats, count: int, cap: Float) -> None:
    """Replace the first `count` numbers by cap * tanh(number / cap)."""
    for i in range(count):
        x = numbers[i] / cap
        size = min(abs(x), np.float32(9))
        # Near 0 the quotient of exponentials would lose digits; the series is exact to 1e-7 there.
        square = x * x
        near = x + x * square * (
            np.float32(-1 / 3) + square * (np.float32(2 / 15) + square * np.float32(-17 / 315))
        )
        falling = exp(-_TWO * size)
        far = (_ONE - falling) / (_ONE + falling)
        far = far if x >= _ZERO else -far
        numbers[i] = cap * (near if size < np.float32(0.15) else far)
