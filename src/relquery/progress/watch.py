"""Where the progress of a run goes: to a function of the user, a terminal, a notebook, or nowhere.

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
from time import perf_counter

from relquery.errors import ConfigError
from relquery.progress import notebook
from relquery.progress.tally import Tally, Usd, Waiting
from relquery.prompt import Answer

Advance = Callable[[str, int, int], None]
"""Called with the stage, the inputs done so far, and how many there are."""


@dataclass(frozen=True, slots=True)
class Watch:
    """What a run tells: how far a stage is, by calling it, and each answer of the backend."""

    advance: Advance
    heard: Callable[[Answer], None] | None = None

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
    usd: Usd | None = None,
    title: str = "",
    waiting: Waiting | None = None,
) -> Iterator[Watch | None]:
    """A block with what its run tells of; None if nobody listens.

    clock: seconds from any start. usd: what an answer has cost. title: before the names of stages.
    waiting: until when nothing is sent.

    Raises ConfigError, see `check_progress`.
    """
    check_progress(progress)
    if isinstance(progress, Checked):
        with watching(progress.progress, clock, usd, title, waiting) as watch:
            yield Watch(progress.first) if watch is None else watch.after(progress.first)
    elif isinstance(progress, Watch):
        yield progress
    elif not (progress is None or isinstance(progress, bool)):
        yield Watch(progress)
    elif progress is False:
        yield None
    elif (display := notebook.display_here()) is not None:
        tally = Tally(clock, usd, waiting)
        with notebook.shown(tally, display) as tell:
            yield Watch(tally.advance, tally.heard).then(tell)
    elif is_terminal():
        from relquery.progress.terminal import drawn  # takes long to import

        tally = Tally(clock, usd, waiting)
        with drawn(tally, title):
            yield Watch(tally.advance, tally.heard)
    else:
        yield None
