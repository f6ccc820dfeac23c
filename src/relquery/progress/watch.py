"""The receiver of a run's progress: to a function of the user, a terminal, a notebook, or nowhere.

progress=None       a terminal or a notebook, if there is one
progress=True       the same; said for one query where the connection's is False
progress=False      nowhere
progress=function   the function alone
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from html import escape
from time import perf_counter
from typing import Any

from relquery.errors import ConfigError
from relquery.html import boxed
from relquery.progress.stages import RunProgress, Stage, Waiting, of
from relquery.prompt import Answer

Display = Callable[[Any], Any]
"""Shows an object, and gives a handle with `update`."""

DELAY = 0.5  # seconds before anything is shown
EVERY = 0.2  # seconds between two updates


class Bars:
    """The bars of a tally."""

    def __init__(self, tally: RunProgress) -> None:
        self._tally, self.is_over = tally, False

    def __repr__(self) -> str:
        stages = {} if self.is_over else self._tally.stages
        return ", ".join(f"{name}: {of(stage.done, stage.total)}" for name, stage in stages.items())

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
def shown(tally: RunProgress, display: Display) -> Iterator[Callable[[], None]]:
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


Advance = Callable[[str, int, int], None]
"""Called with the stage, the inputs done so far, and how many there are."""


@dataclass(frozen=True, slots=True)
class Watch:
    """The progress that a run tells: how far a stage is, by calling it, and each answer of a
    backend with its cost in USD, if that is known."""

    advance: Advance
    heard: Callable[[Answer, float | None], None] | None = None

    def __call__(self, stage: str, done: int, total: int) -> None:
        self.advance(stage, done, total)

    def after(self, first: Advance) -> Watch:
        """The same, with a function that is told before."""

        def advance(stage: str, done: int, total: int) -> None:
            first(stage, done, total)
            self.advance(stage, done, total)

        return replace(self, advance=advance)

    def then(self, tell: Callable[[], None]) -> Watch:
        """The same, with a function that is called after."""

        def advance(stage: str, done: int, total: int) -> None:
            self.advance(stage, done, total)
            tell()

        return replace(self, advance=advance)


@dataclass(frozen=True, slots=True)
class Checked:
    """Progress as a user asked for it, and a function that is told before and may end the run."""

    first: Advance
    progress: Progress


Progress = bool | Advance | Watch | Checked | None
"""See above."""


def check_progress(progress: object) -> None:
    """Raises ConfigError unless it is True, False, None or a function."""
    if not (progress is None or isinstance(progress, bool | Checked) or callable(progress)):
        raise ConfigError(
            f"progress is {progress!r:.60}; it must be True, False, None or a function of (stage, "
            "answered, total)."
        )


def is_terminal() -> bool:
    """Whether standard error is a terminal that can move its cursor."""
    error, kind = sys.stderr, os.environ.get("TERM", "").lower()
    return error is not None and error.isatty() and kind not in ("dumb", "unknown")


@contextmanager
def watching(
    progress: Progress,
    clock: Callable[[], float] = perf_counter,
    title: str = "",
    waiting: Waiting | None = None,
) -> Iterator[Watch | None]:
    """A block with what its run tells of; None if nobody listens.

    clock: seconds from any start. title: before the names of stages. waiting: until when nothing is
    sent.

    Raises ConfigError, see `check_progress`.
    """
    check_progress(progress)
    if isinstance(progress, Checked):
        with watching(progress.progress, clock, title, waiting) as watch:
            yield Watch(progress.first) if watch is None else watch.after(progress.first)
    elif isinstance(progress, Watch):
        yield progress
    elif not (progress is None or isinstance(progress, bool)):
        yield Watch(progress)
    elif progress is False:
        yield None
    elif (display := display_here()) is not None:
        tally = RunProgress(clock, waiting)
        with shown(tally, display) as tell:
            yield Watch(tally.advance, tally.heard).then(tell)
    elif is_terminal():
        from relquery.progress.terminal import drawn  # takes long to import

        tally = RunProgress(clock, waiting)
        with drawn(tally, title):
            yield Watch(tally.advance, tally.heard)
    else:
        yield None
