"""Elementary functions of float32 arrays that compile to vector code; numba's own do not."""

from __future__ import annotations

import numpy as np

from relquery.model.kernels.compiled import Float, Floats, compiled
from relquery.model.kernels.vectors import float_of_bits

LEAST = np.float32(-87.0)
"""Where exp reaches the smallest normal float32."""
_LOG2_E = np.float32(1.44269504)
_LN_2_HIGH, _LN_2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_TO_INTEGER = np.float32(12582912.0)  # 1.5 * 2**23: adding it rounds to an integer
# Cephes, expf: minimax polynomial of (exp(x) - 1 - x) / x**2 on [-ln(2)/2, ln(2)/2].
_E0, _E1, _E2, _E3, _E4, _E5 = (
    np.float32(c)
    for c in (
        1.9875691500e-4,
        1.3981999507e-3,
        8.3334519073e-3,
        4.1665795894e-2,
        1.6666665459e-1,
        5.0000001201e-1,
    )
)
_ONE, _TWO, _ZERO = np.float32(1), np.float32(2), np.float32(0)


@compiled
def exp(x: Float) -> Float:
    """e**x of a float32 up to 88, within 1e-7 of it; 0 below LEAST."""
    bounded = max(x, LEAST)
    whole = (bounded * _LOG2_E + _TO_INTEGER) - _TO_INTEGER
    rest = bounded - whole * _LN_2_HIGH - whole * _LN_2_LOW
    series = ((((_E0 * rest + _E1) * rest + _E2) * rest + _E3) * rest + _E4) * rest + _E5
    power = float_of_bits((np.int32(whole) + np.int32(127)) << np.int32(23))
    return (series * rest * rest + rest + _ONE) * power if x >= LEAST else _ZERO


@compiled
def exp_in_place(numbers: Floats, count: int) -> None:
    """Replace the first `count` numbers by their exponentials."""
    for i in range(count):
        numbers[i] = exp(numbers[i])


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
