"""Kernels that threads run one after another, without Python in between.

A kernel that Python starts waits for Python first, and its threads for one another. That costs ten
to fifteen microseconds: as much as many a kernel of a decode step takes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relquery.arrays import Int64s
from relquery.model.kernels.arguments import Arguments
from relquery.model.kernels.threads import Body, has_openmp, threads

# The program's arguments: addresses unless said otherwise.
(
    _TICKET,  # the next thread's number
    _ARRIVED,  # how often threads have ended a kernel
    _STEPS,  # (count, 2): kernels and their arguments, of which the first two are counters
    _COUNT,
    _INPUTS,
    _LINKS,  # (links, 2): arguments, and which inputs they are
    _LINK_COUNT,
    _ARGUMENTS,
) = range(8)
_RUN = Body("program")


class Program:
    """Kernels that run in order, each on all threads, as often as wanted.

    arguments: what each is told. inputs: for each number that a run is given, the kernels that are
    told it, by their numbers, and as which argument.
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

    def run(self, inputs: Sequence[int] | Int64s) -> None:
        """Run all kernels, and return when the last has ended."""
        self._inputs[:] = inputs
        self._a[_TICKET] = self._a[_ARRIVED] = 0
        _RUN.run(self._a, threads())


def can_run() -> bool:
    """Whether programs run here: where torch's threads are OpenMP's."""
    return has_openmp()
