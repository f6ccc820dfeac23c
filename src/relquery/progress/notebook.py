"""A progress bar per stage in a notebook, removed at the end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

from relquery.html.table import boxed
from relquery.progress.tally import Stage, Tally, of

Display = Callable[[Any], Any]
"""Shows an object, and gives a handle with `update`."""

DELAY = 0.5  # seconds before anything is shown
EVERY = 0.2  # seconds between two updates


class Bars:
    """The bars of a tally."""

    def __init__(self, tally: Tally) -> None:
        self._tally, self.is_over = tally, False

    def __repr__(self) -> str:
        stages = {} if self.is_over else self._tally.stages
        return ", ".join(f"{name}: {of(one.done, one.total)}" for name, one in stages.items())

    def _repr_html_(self) -> str:
        if self.is_over or not self._tally.stages:
            return ""
        stages, figures = self._tally.stages, self._tally.figures()
        return boxed(*(_bar(name, stages[name], text) for name, text in figures.items()))


def _bar(name: str, stage: Stage, figures: str) -> str:
    return (
        f'<p><progress value="{stage.done}" max="{max(stage.total, 1)}"></progress> '
        f"{escape(name)}: {figures}</p>"
    )


def display_here() -> Display | None:
    """What shows objects that can be updated, in a notebook; None elsewhere."""
    if "IPython" not in sys.modules:  # it is there in every notebook
        return None
    from IPython.core.getipython import get_ipython
    from IPython.display import display

    shell = get_ipython()
    if getattr(shell, "kernel", None) is None:
        return None
    return lambda shown: display(shown, display_id=True)  # type: ignore[no-untyped-call]


@contextmanager
def shown(tally: Tally, display: Display) -> Iterator[Callable[[], None]]:
    """A block with a function that shows the tally, if the last time was long enough ago.

    A notebook shows what the thread of its cell displays, so there is no thread here.
    """
    bars, told, handle = Bars(tally), tally.clock() + DELAY - EVERY, None

    def tell() -> None:
        nonlocal told, handle
        now = tally.clock()
        if now < told + EVERY:
            return
        told = now
        if handle is None:  # nothing is shown for a query that ends at once
            handle = display(bars)
        else:
            handle.update(bars)

    try:
        yield tell
    finally:
        bars.is_over = True
        if handle is not None:
            handle.update(bars)
