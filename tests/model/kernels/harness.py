"""Instructions as functions that a test can call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from numba import njit

from relquery.model.kernels.instructions import llvm

HARDWARE = pytest.mark.skipif(not llvm.PAIRS, reason="the processor has no such instruction")
INSTRUCTIONS = pytest.mark.parametrize("instructions", [False, pytest.param(True, marks=HARDWARE)])
"""Whether bfloat16 numbers are rounded and multiplied by the processor's own instructions."""


def compiled(intrinsic: Any, arguments: int, *literals: int) -> Callable[..., None]:
    """A function of so many arguments. literals: given after them."""
    names = ", ".join(f"a{number}" for number in range(arguments))
    given = ", ".join([names, *map(str, literals)])
    made: dict[str, Any] = {"call": intrinsic}
    exec(f"def run({names}):\n    call({given})", made)
    function: Callable[..., None] = njit(made["run"])
    return function
