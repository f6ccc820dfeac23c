"""Elementwise passes over rows of numbers of a kind.

All that happens to a number happens in registers. Rows that are written, rounded and widened again
in between took up to twice as long.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from numba import types

from relquery.model.kernels.compiled import compiled
from relquery.model.kernels.instructions.elementary import exponential
from relquery.model.kernels.instructions.llvm import (
    BYTES,
    F32,
    FLOAT32,
    I64,
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
)

SILU, GELU_TANH = range(2)
"""Activations."""

_LARGEST = 87.0
_GELU_SCALE, _GELU_CUBE = math.sqrt(2 / math.pi), 0.044715


class _Row:
    """Some neighbouring numbers of rows: `lanes` of them, from `index` on."""

    def __init__(self, builder: Any, index: Any, lanes: int, kind: int) -> None:
        self.builder, self.lanes, self.kind = builder, lanes, kind
        self._index = index

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

    def all(self, one: Any) -> Any:
        """One number for all places."""
        return one if self.lanes == 1 else splat(self.builder, one)

    def number(self, value: float) -> Any:
        """A constant for all places."""
        return constant(F32, value, self.lanes)

    def _place(self, row: Any, kind: int) -> Any:
        return moved(self.builder, row, (self._index, I64(BYTES[kind])))


def _pass(work: Callable[..., None]) -> Callable[..., Any]:
    """Instructions for `work` on all numbers of rows; the last two arguments are kind and count."""

    def generate(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        *rest, kind, count = given

        def of_kind(kind: int) -> None:
            def step(index: Any, lanes: int) -> None:
                work(_Row(builder, index, lanes, kind), *rest)

            along(builder, count, step)

        by_kind(builder, kind, of_kind)
        return context.get_dummy_value()

    return generate


@instructions
def add_row(typing: Any, target: Any, added: Any, numbers: Any, kind: Any, count: Any) -> Any:
    """Add a row to a row in place; the sums go to `numbers` as float32 too."""

    def add(row: _Row, target: Any, added: Any, numbers: Any) -> None:
        total = row.rounded(row.builder.fadd(row.read(target), row.read(added)))
        row.write(target, total)
        row.write(numbers, total, FLOAT32)

    return types.void(*[types.int64] * 5), _pass(add)


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
    """x / (1 + exp(exponent))."""
    builder, largest = row.builder, row.number(_LARGEST)
    too_large = builder.fcmp_ordered(">", exponent, largest)
    power = exponential(builder, builder.select(too_large, largest, exponent), row.lanes)
    return builder.fdiv(x, builder.fadd(power, row.number(1.0)))
