"""Kernels with fewer instructions than this machine has, in one process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from relquery import _native, native
from relquery.model.kernels import largest, panels, rows
from relquery.model.kernels.attention import arguments

TARGETS = native.targets()
BODIES = (
    *(rows.LOOK_UP, rows.NORMALIZE, rows.ROTATE, rows.ACTIVATE),
    *(panels.MULTIPLY, largest.FIND, arguments.ATTEND, arguments.MERGE),
)


@contextmanager
def on_target(name: str) -> Iterator[None]:
    """Run the kernels of a target in the block."""
    with pytest.MonkeyPatch.context() as patch:
        for body in BODIES:
            patch.setattr(body, "_address", _native.body(body.name, name))
        yield
