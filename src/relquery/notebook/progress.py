"""A progress bar per stage in a notebook, removed at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

from relquery.html.table import boxed
from relquery.sql.execute.asker import Progress

_EVERY = 0.2  # seconds between two updates


class Bars:
    """The bars. done: by stage, (answers so far, all answers)."""

    def __init__(self) -> None:
        self.done: dict[str, tuple[int, int]] = {}

    def __repr__(self) -> str:
        return ", ".join(
            f"{name}: {done:,} of {total:,}" for name, (done, total) in self.done.items()
        )

    def _repr_html_(self) -> str:
        bars = [_bar(name, *counts) for name, counts in self.done.items()]
        return boxed(*bars) if bars else ""


def _bar(name: str, done: int, total: int) -> str:
    return (
        f'<p><progress value="{done}" max="{max(total, 1)}"></progress> '
        f"{escape(name)}: {of(done, total)}</p>"
    )


def of(done: int, total: int) -> str:
    """`3 of 1,200`."""
    return f"{done:,} of {total:,}"


@contextmanager
def shown(
    display: Callable[[Any], Any] | None, clock: Callable[[], float] = time.monotonic
) -> Iterator[Progress | None]:
    """Give a block a function to report progress to.

    display: shows an object and returns a handle with `update`; None if nothing can be updated.
    """
    if display is None:
        yield None
        return
    bars, told, handle = Bars(), clock(), None

    def advance(stage: str, done: int, total: int) -> None:
        nonlocal told, handle
        bars.done[stage] = done, total
        if clock() < told + _EVERY:
            return
        told = clock()
        if handle is None:  # nothing is shown for a query that ends at once
            handle = display(bars)
        else:
            handle.update(bars)

    try:
        yield advance
    finally:
        bars.done.clear()
        if handle is not None:
            handle.update(bars)
