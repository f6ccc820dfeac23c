"""Building blocks of instructions: numbers, vectors, loops.

numba makes vector code of loops over arrays, but it does not keep the sums of a matrix product in
registers: on a core with AVX-512 its loops reach half the speed of tiles.py. So the innermost
loops are written as LLVM's instructions, which it makes into machine code for any processor; it
splits vectors that the machine does not have.

An address is an int64 that counts bytes. Numbers are in memory as float32, bfloat16 or float16
(their kind), and in registers as float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from llvmlite import binding, ir
from numba.core import cgutils
from numba.extending import intrinsic

FLOAT32, BFLOAT16, FLOAT16 = range(3)
LANES = 16

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_F16, F32 = ir.HalfType(), ir.FloatType()
_STORED = {FLOAT32: F32, BFLOAT16: I16, FLOAT16: _F16}
BYTES = {FLOAT32: 4, BFLOAT16: 2, FLOAT16: 2}


_FEATURES = binding.get_host_cpu_features()
IS_X86 = binding.get_default_triple().startswith("x86_64")
PAIRS = bool(_FEATURES.get("avx512bf16"))
"""Whether the machine rounds to bfloat16, and multiplies pairs of such numbers, in one instruction.
"""
WIDE = bool(_FEATURES.get("avx512f"))
"""Whether a register holds LANES float32 numbers, and there are 32 of them."""
FAST_BFLOAT16 = PAIRS or not IS_X86
"""Whether libraries multiply bfloat16 as fast as float32, if they can do it at all. On processors
of the x86 family without such instructions oneDNN takes seven times as long."""


class BFloat(ir.Type):  # type: ignore[misc]
    """LLVM's bfloat16, which llvmlite does not name."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BFloat)

    def __hash__(self) -> int:
        return hash(BFloat)


def instructions(typed: Callable[..., Any]) -> Callable[..., Any]:
    """A function for compiled code, from its types and the instructions that it stands for."""
    decorate: Any = intrinsic(prefer_literal=True)
    return cast(Callable[..., Any], decorate(typed))


class Loop:
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
        self.index = builder.phi(I64)
        self.index.add_incoming(I64(0), before)
        self.sums = {}
        for name, first in sums.items():
            self.sums[name] = builder.phi(first.type)
            self.sums[name].add_incoming(first, before)

    def add(self, name: Any, value: Any) -> None:
        """Give a sum its next value."""
        self.results[name] = value

    def __enter__(self) -> Loop:
        return self

    def __exit__(self, *failed: object) -> None:
        builder = self._builder
        following = builder.add(self.index, I64(self._step))
        self.index.add_incoming(following, builder.block)
        for name, phi in self.sums.items():
            phi.add_incoming(self.results[name], builder.block)
        after = builder.append_basic_block("after")
        builder.cbranch(builder.icmp_signed("<", following, self._count), self._body, after)
        builder.position_at_end(after)


def by_kind(builder: Any, kind: Any, generate: Callable[[int], None]) -> None:
    """Instructions for each kind; which of them run is known when they do."""
    after = builder.append_basic_block("after")
    choice = builder.switch(kind, after)
    for each in _STORED:
        block = builder.append_basic_block("kind")
        choice.add_case(I64(each), block)
        builder.position_at_end(block)
        generate(each)
        builder.branch(after)
    builder.position_at_end(after)


@contextmanager
def steps(builder: Any, start: Any, stop: Any, step: int) -> Iterator[Any]:
    """A loop over an index."""
    loop: Any = cgutils.for_range_slice
    with loop(builder, start, stop, I64(step), inc=True) as (index, _):
        yield index


def along(builder: Any, count: Any, step: Callable[[Any, int], None]) -> None:
    """Instructions for `count` neighbouring numbers: `step` gets an index, and how many to take."""
    whole = builder.and_(count, I64(-LANES))
    with steps(builder, I64(0), whole, LANES) as index:
        step(index, LANES)
    with steps(builder, whole, count, 1) as index:
        step(index, 1)


def addresses(builder: Any, listed: Any, count: int) -> list[Any]:
    places = [moved(builder, listed, offset=8 * number) for number in range(count)]
    return [builder.load(builder.inttoptr(place, I64.as_pointer())) for place in places]


def moved(builder: Any, address: Any, steps: tuple[Any, Any] | None = None, offset: int = 0) -> Any:
    """An address plus an offset plus a number of steps."""
    if steps is not None:
        address = builder.add(address, builder.mul(*steps))
    return builder.add(address, I64(offset)) if offset else address


def many(one: Any, lanes: int) -> Any:
    return one if lanes == 1 else ir.VectorType(one, lanes)


def constant(one: Any, value: float, lanes: int) -> Any:
    return ir.Constant(many(one, lanes), value if lanes == 1 else [value] * lanes)


def load(builder: Any, address: Any, kind: int = FLOAT32, lanes: int = LANES) -> Any:
    """The numbers at an address, as float32."""
    place = builder.inttoptr(address, many(_STORED[kind], lanes).as_pointer())
    found = builder.load(place, align=BYTES[kind])
    if kind == BFLOAT16:  # the upper half of a float32
        wide = builder.zext(found, many(I32, lanes))
        bits = builder.shl(wide, constant(I32, 16, lanes))
        return builder.bitcast(bits, many(F32, lanes))
    return found if kind == FLOAT32 else builder.fpext(found, many(F32, lanes))


def load_pairs(builder: Any, address: Any, lanes: int = LANES) -> Any:
    """Pairs of bfloat16 numbers at an address, each as an int32."""
    place = builder.inttoptr(address, many(I32, lanes).as_pointer())
    return builder.load(place, align=BYTES[BFLOAT16])


def store(builder: Any, value: Any, address: Any, kind: int = FLOAT32, lanes: int = LANES) -> None:
    """Round float32 numbers to a kind, to the nearest and halves to even, and store them."""
    if kind == BFLOAT16:
        upper = builder.lshr(bfloat16_bits(builder, value, lanes), constant(I32, 16, lanes))
        value = builder.trunc(upper, many(I16, lanes))
    elif kind == FLOAT16:
        value = builder.fptrunc(value, many(_F16, lanes))
    builder.store(value, builder.inttoptr(address, value.type.as_pointer()), align=BYTES[kind])


def bfloat16_bits(builder: Any, value: Any, lanes: int = LANES) -> Any:
    """Float32 numbers rounded to bfloat16, to the nearest and halves to even: the upper half of
    each int32; the lower is undefined. What is below 1.2e-38 may become 0."""
    if PAIRS:
        short = builder.fptrunc(value, many(BFloat(), lanes))
        wide = builder.zext(builder.bitcast(short, many(I16, lanes)), many(I32, lanes))
        return builder.shl(wide, constant(I32, 16, lanes))
    bits = builder.bitcast(value, many(I32, lanes))
    sixteen, one = constant(I32, 16, lanes), constant(I32, 1, lanes)
    odd = builder.and_(builder.lshr(bits, sixteen), one)
    rounded = builder.add(builder.add(bits, constant(I32, 0x7FFF, lanes)), odd)
    # Rounding the bits of a NaN might give infinity.
    is_nan = builder.fcmp_unordered("uno", value, value)
    return builder.select(is_nan, constant(I32, 0x7FC00000, lanes), rounded)


def rounded(builder: Any, value: Any, kind: int, lanes: int = LANES) -> Any:
    """Float32 numbers rounded to a kind, as float32."""
    if kind == BFLOAT16:
        upper = constant(I32, -65536, lanes)
        bits = builder.and_(bfloat16_bits(builder, value, lanes), upper)
        return builder.bitcast(bits, value.type)
    if kind == FLOAT16:
        return builder.fpext(builder.fptrunc(value, many(_F16, lanes)), value.type)
    return value


def pair(builder: Any, first: Any, second: Any) -> Any:
    """Pairs, the first in the lower half, of the upper halves of int32 numbers."""
    low = builder.lshr(first, constant(I32, 16, LANES))
    return builder.or_(low, builder.and_(second, constant(I32, -65536, LANES)))


def fused(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, in one instruction where the machine has it."""
    kind = a.type
    name = f"llvm.fmuladd.v{LANES}f32" if isinstance(kind, ir.VectorType) else "llvm.fmuladd.f32"
    return builder.call(declared(builder, ir.FunctionType(kind, [kind] * 3), name), [a, b, c])


def multiplied(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c; if a and b are pairs of bfloat16 numbers, the sum of both products and c."""
    if a.type.element != I32:
        return fused(builder, a, b, c)
    if PAIRS:
        pairs = ir.VectorType(BFloat(), 2 * LANES)
        shape = ir.FunctionType(c.type, [c.type, pairs, pairs])
        dot = declared(builder, shape, "llvm.x86.avx512bf16.dpbf16ps.512")
        return builder.call(dot, [c, builder.bitcast(a, pairs), builder.bitcast(b, pairs)])
    for half in _low_half, _high_half:
        c = fused(builder, half(builder, a), half(builder, b), c)
    return c


def _low_half(builder: Any, pairs: Any) -> Any:
    """The first number of each pair as float32."""
    return builder.bitcast(builder.shl(pairs, constant(I32, 16, LANES)), many(F32, LANES))


def _high_half(builder: Any, pairs: Any) -> Any:
    upper = builder.and_(pairs, constant(I32, -65536, LANES))
    return builder.bitcast(upper, many(F32, LANES))


def fetch(builder: Any, address: Any) -> None:
    """Begin to read what is at an address into the second-level cache."""
    pointer = I8.as_pointer()
    shape = ir.FunctionType(ir.VoidType(), [pointer, I32, I32, I32])
    read, second_level, data = I32(0), I32(2), I32(1)
    prefetch = declared(builder, shape, "llvm.prefetch.p0")
    builder.call(prefetch, [builder.inttoptr(address, pointer), read, second_level, data])


def sum_of(builder: Any, vector: Any) -> Any:
    shape = ir.FunctionType(F32, [F32, vector.type])
    name = f"llvm.vector.reduce.fadd.v{LANES}f32"
    add = declared(builder, shape, name)
    return builder.call(add, [F32(0.0), vector], fastmath=("reassoc",))


def sums_of(builder: Any, vectors: Sequence[Any]) -> list[Any]:
    """The sum of each vector's numbers; of four vectors together, in a third of the instructions.

    vectors: a multiple of four.
    """
    found: list[Any] = []
    for first in range(0, len(vectors), 4):
        a, b, c, d = vectors[first : first + 4]
        # In each four lanes: two sums of a and b in turns, then one of each of the four.
        left, right = _folded(builder, a, b, 1), _folded(builder, c, d, 1)
        total = _folded(builder, left, right, 2)
        while (half := total.type.count // 2) >= 4:
            parts = [list(range(start, start + half)) for start in (0, half)]
            low, high = (_chosen(builder, total, total, lanes) for lanes in parts)
            total = builder.fadd(low, high)
        found += [builder.extract_element(total, I32(lane)) for lane in range(4)]
    return found


def _folded(builder: Any, a: Any, b: Any, step: int) -> Any:
    """Sums of numbers that are `step` lanes apart: `step` of a, then of b, and so on."""
    lanes = [
        first + offset
        for at in range(0, LANES, 2 * step)
        for first in (at, LANES + at)
        for offset in range(step)
    ]
    parts = [_chosen(builder, a, b, [lane + move for lane in lanes]) for move in (0, step)]
    return builder.fadd(*parts)


def _chosen(builder: Any, a: Any, b: Any, lanes: Sequence[int]) -> Any:
    """Lanes of a, and of b counted behind them."""
    return builder.shuffle_vector(a, b, ir.Constant(many(I32, len(lanes)), list(lanes)))


def declared(builder: Any, shape: Any, name: str) -> Any:
    find: Any = cgutils.get_or_insert_function
    return find(builder.module, shape, name)


def splat(builder: Any, one: Any) -> Any:
    undefined = ir.Constant(many(one.type, LANES), ir.Undefined)
    first = builder.insert_element(undefined, one, I32(0))
    return builder.shuffle_vector(first, undefined, constant(I32, 0, LANES))
