"""Bodies that threads run one after another, without Python in between.

A body that Python starts waits for Python first, and its threads for one another. That costs ten
to fifteen microseconds: as much as many a body of a decode step takes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from relquery.arrays import Int64s
from relquery.model.kernels.arguments import Arguments
from relquery.model.kernels.compiled import compiled, integers
from relquery.model.kernels.instructions.llvm import I64, IS_X86, declared, instructions
from relquery.model.kernels.instructions.vectors import take_number
from relquery.model.kernels.threads import Body, openmp, threads

SPINS = 4_000
"""Looks at a counter before a thread lets others have its core. Beside a busy process a decode step
then takes two thirds of what it takes by OpenMP's own barrier."""

# The program's arguments: addresses unless said otherwise.
(
    _TICKET,  # the next thread's number
    _ARRIVED,  # how often threads have ended a body
    _STEPS,  # (count, 2): bodies and their arguments, of which the first two are counters
    _COUNT,
    _INPUTS,
    _LINKS,  # (links, 2): arguments, and which inputs they are
    _LINK_COUNT,
    _THREADS,  # a function: how many threads run
    _YIELD,  # a function: lets others have the core
    _ARGUMENTS,
) = range(10)


class Program:
    """Bodies that run in order, each on all threads, as often as wanted.

    arguments: what each body is told. inputs: for each number that a run is given, the bodies that
    are told it, by their numbers, and as which argument.
    """

    def __init__(
        self,
        bodies: Sequence[Body],
        arguments: Sequence[Int64s],
        inputs: Sequence[tuple[Sequence[int], int]],
    ) -> None:
        self._given = [each.copy() for each in arguments]
        places = [each.ctypes.data for each in self._given]
        self._steps = np.array(
            [(each.address, at) for each, at in zip(bodies, places, strict=True)]
        )
        self._links = np.array(
            [
                (places[body] + 8 * argument, number)
                for number, (told, argument) in enumerate(inputs)
                for body in told
            ],
            dtype=np.int64,
        )
        self._inputs = np.zeros(len(inputs), dtype=np.int64)
        self._a = a = Arguments(_ARGUMENTS)
        a[_STEPS], a[_COUNT] = self._steps.ctypes.data, len(bodies)
        a[_LINKS], a[_LINK_COUNT] = self._links.ctypes.data, len(self._links)
        a[_INPUTS] = self._inputs.ctypes.data
        a[_THREADS], a[_YIELD] = _functions()

    def run(self, inputs: Sequence[int] | Int64s) -> None:
        """Run all bodies, and return when the last has ended."""
        self._inputs[:] = inputs
        self._a[_TICKET] = self._a[_ARRIVED] = 0
        _RUN.run(self._a, threads())


@cache
def can_run() -> bool:
    """Whether programs run here: where torch's threads are OpenMP's."""
    return openmp() is not None and hasattr(ctypes.CDLL(None), "sched_yield")


@cache
def _functions() -> tuple[int, int]:
    found = openmp()
    assert found is not None
    return _address(found.omp_get_num_threads), _address(ctypes.CDLL(None).sched_yield)


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@instructions
def _call(typing: Any, function: Any, argument: Any) -> Any:
    """Call a function of one int64, at an address."""

    def generate(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        shape = ir.FunctionType(ir.VoidType(), [I64])
        builder.call(builder.inttoptr(given[0], shape.as_pointer()), [given[1]])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@instructions
def _ask(typing: Any, function: Any) -> Any:
    """What a function at an address returns, an int32."""

    def generate(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        shape = ir.FunctionType(ir.IntType(32), [])
        found = builder.call(builder.inttoptr(given[0], shape.as_pointer()), [])
        return builder.sext(found, I64)

    return types.int64(types.int64), generate


@instructions
def _look(typing: Any, address: Any) -> Any:
    """The int64 at an address, as other threads have left it; then rest for a few cycles."""

    def generate(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        place = builder.inttoptr(given[0], I64.as_pointer())
        found = builder.load_atomic(place, ordering="acquire", align=8)
        if IS_X86:
            shape = ir.FunctionType(ir.VoidType(), [])
            builder.call(declared(builder, shape, "llvm.x86.sse2.pause"), [])
        return found

    return types.int64(types.int64), generate


@compiled
def _begin(a: Int64s) -> None:
    """Hand on the inputs, and set the bodies' counters to 0."""
    inputs = integers(a[_INPUTS], a[_LINK_COUNT])
    for link in range(a[_LINK_COUNT]):
        listed = integers(a[_LINKS] + 2 * 8 * link, 2)
        integers(listed[0], 1)[0] = inputs[listed[1]]
    for step in range(a[_COUNT]):
        integers(integers(a[_STEPS] + 2 * 8 * step, 2)[1], 2)[:] = 0


@compiled
def _wait(a: Int64s, goal: int) -> None:
    """Wait until threads have arrived so often."""
    looks = 0
    while _look(a.ctypes.data + 8 * _ARRIVED) < goal:
        looks += 1
        if looks > SPINS:
            _ask(a[_YIELD])


@compiled
def _run_steps(a: Int64s) -> None:
    """What one thread does."""
    count, arrived = _ask(a[_THREADS]), a.ctypes.data + 8 * _ARRIVED
    if take_number(a.ctypes.data + 8 * _TICKET) == 0:
        _begin(a)
    take_number(arrived)
    for number in range(a[_COUNT]):
        _wait(a, (number + 1) * count)
        step = integers(a[_STEPS] + 2 * 8 * number, 2)
        _call(step[0], step[1])
        take_number(arrived)


def _run(place: Any) -> None:
    _run_steps(integers(place, _ARGUMENTS))


_RUN = Body(_run)
