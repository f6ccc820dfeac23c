"""Vector instructions for compiled loops: 16 float32 numbers at a time, at given addresses.

numba makes vector code of loops over arrays, but it does not keep the sums of a matrix product in
registers: on a core with AVX-512 its loops reach half the speed of `add_products`.

An address is an int64 that counts bytes. Numbers are in memory as float32, bfloat16 or float16
(their kind), and in registers as float32. LLVM splits vectors that the machine does not have.
Arguments marked as literal must be constants where compiled code calls these functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

FLOAT32, BFLOAT16, FLOAT16 = range(3)
LANES = 16

_I16, _I32, _I64 = (ir.IntType(bits) for bits in (16, 32, 64))
_F16, _F32 = ir.HalfType(), ir.FloatType()
_STORED = {FLOAT32: _F32, BFLOAT16: _I16, FLOAT16: _F16}
_BYTES = {FLOAT32: 4, BFLOAT16: 2, FLOAT16: 2}


def _instructions(typed: Callable[..., Any]) -> Callable[..., Any]:
    """A function for compiled code, from its types and the instructions that it stands for."""
    decorate: Any = intrinsic(prefer_literal=True)
    return cast(Callable[..., Any], decorate(typed))


@_instructions
def pointer(typing: Any, address: Any) -> Any:
    """The address as a pointer, for `carray`."""

    def generate(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        return builder.inttoptr(given[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.int64), generate


@_instructions
def take_number(typing: Any, address: Any) -> Any:
    """Return the int64 at an address and add one to it, as one step among threads."""

    def generate(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        place = builder.inttoptr(given[0], _I64.as_pointer())
        return builder.atomic_rmw("add", place, _I64(1), "seq_cst")

    return types.int64(types.int64), generate


@_instructions
def float_of_bits(typing: Any, bits: Any) -> Any:
    """The float32 with these bits, an int32."""

    def generate(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        return builder.bitcast(given[0], _F32)

    return types.float32(types.int32), generate


@_instructions
def widen(typing: Any, target: Any, source: Any, kind: Any, count: Any) -> Any:
    """Copy numbers of a kind to float32."""
    return types.void(*[types.int64] * 4), _copy(to_float=True)


@_instructions
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
                read = _at(builder, source, (index, _I64(_BYTES[from_kind])))
                write = _at(builder, target, (index, _I64(_BYTES[to_kind])))
                _store(builder, _load(builder, read, from_kind, lanes), write, to_kind, lanes)

            whole = builder.and_(count, _I64(-LANES))
            with _range(builder, _I64(0), whole, LANES) as index:
                step(index, LANES)
            with _range(builder, whole, count, 1) as index:
                step(index, 1)

        _by_kind(builder, kind, copy)
        return context.get_dummy_value()

    return generate


@_instructions
def add_products(
    typing: Any,
    c: Any,
    c_row: Any,
    a: Any,
    a_row: Any,
    a_step: Any,
    b: Any,
    b_row: Any,
    count: Any,
    rows: Any,
    vectors: Any,
) -> Any:
    """c += a @ b for a tile of `rows` x (`vectors` x LANES) sums that stay in registers.

    a: `rows` x `count`, b: `count` x (`vectors` x LANES), all float32; `count` is at least 1.
    c_row, b_row, a_row: bytes from row to row; a_step: from number to number of a row. `rows` and
    `vectors` are literal.
    """
    down, across = rows.literal_value, vectors.literal_value

    def generate(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        c, c_row, a, a_row, a_step, b, b_row, count = given[:8]
        tile = [(row, vector) for row in range(down) for vector in range(across)]
        places = {
            (row, vector): _at(builder, c, (_I64(row), c_row), offset=vector * LANES * 4)
            for row, vector in tile
        }
        sums = {each: _load(builder, place) for each, place in places.items()}
        lines = [_at(builder, a, (_I64(row), a_row)) for row in range(down)]
        with _Loop(builder, count, 1, sums) as loop:
            line = _at(builder, b, (loop.index, b_row))
            loaded = [
                _load(builder, _at(builder, line, offset=vector * LANES * 4))
                for vector in range(across)
            ]
            for row in range(down):
                place = _at(builder, lines[row], (loop.index, a_step))
                weight = _splat(builder, _load(builder, place, lanes=1))
                for vector in range(across):
                    before = loop.sums[row, vector]
                    loop.add((row, vector), _fused(builder, weight, loaded[vector], before))
        for each, place in places.items():
            _store(builder, loop.results[each], place)
        return context.get_dummy_value()

    signature = types.void(*[types.int64] * 8, rows, vectors)
    return signature, generate


@_instructions
def dots(
    typing: Any, scores: Any, step: Any, query: Any, keys: Any, width: Any, kind: Any, rows: Any
) -> Any:
    """The dot products of a float32 query with `rows` keys of a kind.

    scores: where the first goes, `step` bytes before the next. keys: where the keys' addresses are.
    width: numbers in each, a multiple of LANES. `rows` is literal.
    """
    down = rows.literal_value

    def generate(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        scores, step, query, keys, width, kind = given[:6]
        lines = _addresses(builder, keys, down)
        zeros = dict.fromkeys(range(down), _constant(_F32, 0.0, LANES))

        def multiply(kind: int) -> None:
            with _Loop(builder, width, LANES, zeros) as loop:
                numbers = _load(builder, _at(builder, query, (loop.index, _I64(4))))
                for row, line in enumerate(lines):
                    place = _at(builder, line, (loop.index, _I64(_BYTES[kind])))
                    key = _load(builder, place, kind)
                    loop.add(row, _fused(builder, key, numbers, loop.sums[row]))
            for row in range(down):
                total = _total(builder, loop.results[row])
                _store(builder, total, _at(builder, scores, (_I64(row), step)), lanes=1)

        _by_kind(builder, kind, multiply)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6, rows), generate


@_instructions
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
        lines = _addresses(builder, values, down)
        places = [_at(builder, weights, (_I64(row), step)) for row in range(down)]
        shares = [_splat(builder, _load(builder, place, lanes=1)) for place in places]

        def add(kind: int) -> None:
            with _Loop(builder, width, LANES, {}) as loop:
                place = _at(builder, sums, (loop.index, _I64(4)))
                total = _load(builder, place)
                for share, line in zip(shares, lines, strict=True):
                    where = _at(builder, line, (loop.index, _I64(_BYTES[kind])))
                    total = _fused(builder, share, _load(builder, where, kind), total)
                _store(builder, total, place)

        _by_kind(builder, kind, add)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6, rows), generate


class _Loop:
    """A loop from 0 to `count`, at least once, by `step`, whose sums stay in registers.

    In it, `sums` are those so far and `add` gives the next; after it, `results` are the last.
    """

    def __init__(self, builder: Any, count: Any, step: int, sums: dict[Any, Any]) -> None:
        self.results: dict[Any, Any] = {}
        self._builder, self._count, self._step = builder, count, step
        before = builder.block
        self._body = builder.append_basic_block("loop")
        builder.branch(self._body)
        builder.position_at_end(self._body)
        self.index = builder.phi(_I64)
        self.index.add_incoming(_I64(0), before)
        self.sums = {}
        for name, first in sums.items():
            self.sums[name] = builder.phi(first.type)
            self.sums[name].add_incoming(first, before)

    def add(self, name: Any, value: Any) -> None:
        """Give a sum its next value."""
        self.results[name] = value

    def __enter__(self) -> _Loop:
        return self

    def __exit__(self, *failed: object) -> None:
        builder = self._builder
        following = builder.add(self.index, _I64(self._step))
        self.index.add_incoming(following, builder.block)
        for name, phi in self.sums.items():
            phi.add_incoming(self.results[name], builder.block)
        after = builder.append_basic_block("after")
        builder.cbranch(builder.icmp_signed("<", following, self._count), self._body, after)
        builder.position_at_end(after)


def _by_kind(builder: Any, kind: Any, generate: Callable[[int], None]) -> None:
    """Instructions for each kind; which of them run is known when they do."""
    after = builder.append_basic_block("after")
    choice = builder.switch(kind, after)
    for each in _STORED:
        block = builder.append_basic_block("kind")
        choice.add_case(_I64(each), block)
        builder.position_at_end(block)
        generate(each)
        builder.branch(after)
    builder.position_at_end(after)


@contextmanager
def _range(builder: Any, start: Any, stop: Any, step: int) -> Iterator[Any]:
    """A loop over an index."""
    loop: Any = cgutils.for_range_slice
    with loop(builder, start, stop, _I64(step), inc=True) as (index, _):
        yield index


def _addresses(builder: Any, listed: Any, count: int) -> list[Any]:
    places = [_at(builder, listed, offset=8 * number) for number in range(count)]
    return [builder.load(builder.inttoptr(place, _I64.as_pointer())) for place in places]


def _at(builder: Any, address: Any, moved: tuple[Any, Any] | None = None, offset: int = 0) -> Any:
    """An address plus an offset plus a number of steps."""
    if moved is not None:
        address = builder.add(address, builder.mul(*moved))
    return builder.add(address, _I64(offset)) if offset else address


def _many(one: Any, lanes: int) -> Any:
    return one if lanes == 1 else ir.VectorType(one, lanes)


def _constant(one: Any, value: float, lanes: int) -> Any:
    return ir.Constant(_many(one, lanes), value if lanes == 1 else [value] * lanes)


def _load(builder: Any, address: Any, kind: int = FLOAT32, lanes: int = LANES) -> Any:
    """The numbers at an address, as float32."""
    place = builder.inttoptr(address, _many(_STORED[kind], lanes).as_pointer())
    found = builder.load(place, align=_BYTES[kind])
    if kind == BFLOAT16:  # the upper half of a float32
        wide = builder.zext(found, _many(_I32, lanes))
        bits = builder.shl(wide, _constant(_I32, 16, lanes))
        return builder.bitcast(bits, _many(_F32, lanes))
    return found if kind == FLOAT32 else builder.fpext(found, _many(_F32, lanes))


def _store(builder: Any, value: Any, address: Any, kind: int = FLOAT32, lanes: int = LANES) -> None:
    """Round float32 numbers to a kind, to the nearest and halves to even, and store them."""
    if kind == BFLOAT16:
        bits = builder.bitcast(value, _many(_I32, lanes))
        sixteen, one = _constant(_I32, 16, lanes), _constant(_I32, 1, lanes)
        odd = builder.and_(builder.lshr(bits, sixteen), one)
        rounded = builder.add(builder.add(bits, _constant(_I32, 0x7FFF, lanes)), odd)
        upper = builder.trunc(builder.lshr(rounded, sixteen), _many(_I16, lanes))
        is_nan = builder.fcmp_unordered("uno", value, value)  # which rounding might make infinite
        value = builder.select(is_nan, _constant(_I16, 0x7FC0, lanes), upper)
    elif kind == FLOAT16:
        value = builder.fptrunc(value, _many(_F16, lanes))
    builder.store(value, builder.inttoptr(address, value.type.as_pointer()), align=_BYTES[kind])


def _fused(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, in one instruction where the machine has it."""
    vector = a.type
    shape = ir.FunctionType(vector, [vector] * 3)
    name = f"llvm.fmuladd.v{LANES}f32"
    return builder.call(_declared(builder, shape, name), [a, b, c])


def _total(builder: Any, vector: Any) -> Any:
    shape = ir.FunctionType(_F32, [_F32, vector.type])
    name = f"llvm.vector.reduce.fadd.v{LANES}f32"
    add = _declared(builder, shape, name)
    return builder.call(add, [_F32(0.0), vector], fastmath=("reassoc",))


def _declared(builder: Any, shape: Any, name: str) -> Any:
    find: Any = cgutils.get_or_insert_function
    return find(builder.module, shape, name)


def _splat(builder: Any, one: Any) -> Any:
    undefined = ir.Constant(_many(_F32, LANES), ir.Undefined)
    first = builder.insert_element(undefined, one, _I32(0))
    return builder.shuffle_vector(first, undefined, _constant(_I32, 0, LANES))
