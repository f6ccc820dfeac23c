"""Elementary functions of float32 numbers that compile to vector code; numba's own do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import types

from relquery.model.kernels.compiled import Float, Floats, compiled
from relquery.model.kernels.llvm import F32, I32, constant, fused, instructions, many

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
