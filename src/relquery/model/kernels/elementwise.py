"""Elementwise passes over rows of numbers of a kind.

All that happens to a number happens in registers. Rows that are written, rounded and widened again
in between took up to twice as long.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from numba import types
from numba.core import cgutils

from relquery.model.kernels.compiled import compiled
from relquery.model.kernels.instructions.elementary import (
    SCALES,
    exponential,
    reciprocal,
    rough_exponential,
)
from relquery.model.kernels.instructions.llvm import (
    BYTES,
    F32,
    FLOAT32,
    I64,
    LANES,
    along,
    by_kind,
    constant,
    fused,
    instructions,
    load,
    moved,
    rounded,
    splat,
    store,
    sum_of,
)

SILU, GELU_TANH = range(2)
"""Activations."""

_LARGEST = 87.0
_GELU_SCALE, _GELU_CUBE = math.sqrt(2 / math.pi), 0.044715


class _Row:
    """Some neighbouring numbers of rows: `lanes` of them, from `index` on."""

    def __init__(
        self, builder: Any, index: Any, lanes: int, kind: int, squares: dict[int, Any]
    ) -> None:
        self.builder, self.lanes, self.kind = builder, lanes, kind
        self._index, self._squares = index, squares

    def read(self, row: Any, kind: int | None = None) -> Any:
        """The numbers of a row, as float32. kind: of the row, if it is not that of the pass."""
        kind = self.kind if kind is None else kind
        return load(self.builder, self._place(row, kind), kind, self.lanes)

    def write(self, row: Any, value: Any, kind: int | None = None) -> None:
        """Round numbers to a kind, and store them in a row."""
        kind = self.kind if kind is None else kind
        store(self.builder, value, self._place(row, kind), kind, self.lanes)

    def rounded(self, value: Any) -> Any:
        """Numbers rounded to the kind of the pass."""
        return rounded(self.builder, value, self.kind, self.lanes)

    def square(self, value: Any) -> None:
        """Add the squares of numbers to the sum that the pass returns."""
        place = self._squares[self.lanes]
        self.builder.store(fused(self.builder, value, value, self.builder.load(place)), place)

    def all(self, one: Any) -> Any:
        """One number for all places."""
        return one if self.lanes == 1 else splat(self.builder, one)

    def number(self, value: float) -> Any:
        """A constant for all places."""
        return constant(F32, value, self.lanes)

    def _place(self, row: Any, kind: int) -> Any:
        return moved(self.builder, row, (self._index, I64(BYTES[kind])))


def _pass(work: Callable[..., None], *, sums: bool = False) -> Callable[..., Any]:
    """Instructions for `work` on all numbers of rows; the last two arguments are kind and count.

    sums: return the sum of squares, a float32.
    """

    def generate(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        *rest, kind, count = given
        keep: Any = cgutils.alloca_once_value
        zeros = {lanes: constant(F32, 0.0, lanes) for lanes in (LANES, 1)}
        squares = {lanes: keep(builder, zero) for lanes, zero in zeros.items()} if sums else {}
        for lanes, place in squares.items():  # the function may be in a loop
            builder.store(zeros[lanes], place)

        def of_kind(kind: int) -> None:
            def step(index: Any, lanes: int) -> None:
                work(_Row(builder, index, lanes, kind, squares), *rest)

            along(builder, count, step)

        by_kind(builder, kind, of_kind)
        if not sums:
            return context.get_dummy_value()
        whole = sum_of(builder, builder.load(squares[LANES]))
        return builder.fadd(whole, builder.load(squares[1]))

    return generate


@instructions
def read_row(typing: Any, numbers: Any, source: Any, kind: Any, count: Any) -> Any:
    """Write a row to `numbers`, as float32; returns the sum of squares."""

    def read(row: _Row, numbers: Any, source: Any) -> None:
        value = row.read(source)
        row.write(numbers, value, FLOAT32)
        row.square(value)

    return types.float32(*[types.int64] * 4), _pass(read, sums=True)


@instructions
def add_row(typing: Any, target: Any, added: Any, numbers: Any, kind: Any, count: Any) -> Any:
    """Add a row to a row in place. The sums go to `numbers` as float32 too; returns the sum of
    their squares."""

    def add(row: _Row, target: Any, added: Any, numbers: Any) -> None:
        total = row.rounded(row.builder.fadd(row.read(target), row.read(added)))
        row.write(target, total)
        row.write(numbers, total, FLOAT32)
        row.square(total)

    return types.float32(*[types.int64] * 5), _pass(add, sums=True)


@instructions
def weigh_row(
    typing: Any, target: Any, numbers: Any, weights: Any, scale: Any, kind: Any, count: Any
) -> Any:
    """Write `numbers` times `scale`, rounded, times weights; both are float32."""

    def weigh(row: _Row, target: Any, numbers: Any, weights: Any, scale: Any) -> None:
        scaled = row.builder.fmul(row.read(numbers, FLOAT32), row.all(scale))
        product = row.builder.fmul(row.rounded(scaled), row.read(weights, FLOAT32))
        row.write(target, product)

    return types.void(*[types.int64] * 3, types.float32, *[types.int64] * 2), _pass(weigh)


@compiled
def gate(target: int, gates: int, ups: int, activation: int, kind: int, count: int) -> None:
    """Write activation(gates), rounded, times ups."""
    if activation == SILU:
        _gate(target, gates, ups, SILU, kind, count)
    else:
        _gate(target, gates, ups, GELU_TANH, kind, count)


@instructions
def _gate(
    typing: Any, target: Any, gates: Any, ups: Any, activation: Any, kind: Any, count: Any
) -> Any:
    """`gate`; `activation` is literal."""
    activate = {SILU: _silu, GELU_TANH: _gelu}[activation.literal_value]

    def gate(row: _Row, target: Any, gates: Any, ups: Any, _: Any) -> None:
        activated = row.rounded(activate(row, row.read(gates)))
        row.write(target, row.builder.fmul(activated, row.read(ups)))

    made = types.void(*[types.int64] * 3, activation, *[types.int64] * 2)
    return made, _pass(gate)


@instructions
def turn_pairs(
    typing: Any,
    target: Any,
    other_target: Any,
    source: Any,
    other_source: Any,
    cosines: Any,
    sines: Any,
    kind: Any,
    count: Any,
) -> Any:
    """Rotate pairs, whose first numbers are in one row and whose others in another one, by angles
    with these float32 cosines and sines. Targets may be the sources."""

    def turn(row: _Row, target: Any, other_target: Any, *read: Any) -> None:
        builder, (source, other_source, cosines, sines) = row.builder, read
        x, y = row.read(source), row.read(other_source)
        cosine, sine = row.read(cosines, FLOAT32), row.read(sines, FLOAT32)
        falling = builder.fneg(builder.fmul(y, sine))
        row.write(target, fused(builder, x, cosine, falling))
        row.write(other_target, fused(builder, y, cosine, builder.fmul(x, sine)))

    return types.void(*[types.int64] * 8), _pass(turn)


def _silu(row: _Row, x: Any) -> Any:
    return _divided(row, x, row.builder.fneg(x))


def _gelu(row: _Row, x: Any) -> Any:
    builder = row.builder
    square = builder.fmul(x, x)
    inner = fused(builder, builder.fmul(square, x), row.number(_GELU_CUBE), x)
    # 1 + tanh(z) = 2 / (1 + exp(-2z))
    return _divided(row, x, builder.fmul(inner, row.number(-2 * _GELU_SCALE)))


def _divided(row: _Row, x: Any, exponent: Any) -> Any:
    """x / (1 + exp(exponent)); 0 times x where the exponential is too large."""
    builder, largest = row.builder, row.number(_LARGEST)
    too_large = builder.fcmp_ordered(">", exponent, largest)
    quotient = _quotient(row, x, builder.select(too_large, largest, exponent))
    return builder.select(too_large, builder.fmul(x, row.number(0.0)), quotient)


def _quotient(row: _Row, x: Any, exponent: Any) -> Any:
    builder, one = row.builder, row.number(1.0)
    if not SCALES or row.lanes == 1 or row.kind == FLOAT32:
        return builder.fdiv(x, builder.fadd(exponential(builder, exponent, row.lanes), one))
    # What is rounded to 11 bits or fewer: within 4e-6, in two thirds of the time.
    divisor = builder.fadd(rough_exponential(builder, exponent, row.number(0.0)), one)
    near = reciprocal(builder, divisor)
    rest = fused(builder, builder.fneg(divisor), near, row.number(2.0))
    return builder.fmul(x, builder.fmul(near, rest))
