"""A line per stage in a terminal, on standard error, removed at the end."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TextIO

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from relquery.progress.stages import RunProgress

DELAY = 0.5  # seconds before anything is shown
EVERY = 0.1  # seconds between two updates
_BAR = 20  # characters
_DRAWN = threading.Lock()
"""Held by the one run that is shown; the others of the process are not."""


class Drawer:
    """A drawer of a run's progress. Nothing is drawn in the first DELAY seconds, nor while another
    run is."""

    def __init__(self, tally: RunProgress, title: str, stream: TextIO) -> None:
        self._tally, self._title = tally, title
        self._console = Console(file=stream, force_terminal=True)
        self._stream, self._began = stream, tally.clock()
        self._open = ExitStack()
        self._live: Live | None = None

    def draw(self) -> None:
        """Draw what there is now."""
        now = self._tally.clock()
        if not self._tally.stages or now - self._began < DELAY:
            return
        if self._live is None and not self._start():
            return
        assert self._live is not None
        self._live.update(self._view(), refresh=True)

    def _start(self) -> bool:
        if not _DRAWN.acquire(blocking=False):
            return False
        self._open.callback(_DRAWN.release)
        to_terminal = sys.stdout is not None and sys.stdout.isatty()
        live = Live(
            console=self._console,
            transient=True,
            auto_refresh=False,
            redirect_stdout=to_terminal,  # otherwise it is a file or a pipe, which stays one
        )
        self._live = self._open.enter_context(live)
        self._open.enter_context(_logs_above(self._stream))
        return True

    def _view(self) -> Table:
        view = Table.grid(padding=(0, 1))
        view.add_column(no_wrap=True)
        view.add_column(width=_BAR)
        view.add_column(no_wrap=True, overflow="ellipsis")
        for name, figures in self._tally.figures().items():
            stage = self._tally.stages[name]
            bar = ProgressBar(max(stage.total, 1), stage.done, _BAR)
            view.add_row(Text(f"{self._title}{name}"), bar, Text(figures))
        return view

    def close(self) -> None:
        """Remove what was drawn."""
        self._open.close()


@contextmanager
def drawn(tally: RunProgress, title: str = "") -> Iterator[None]:
    """A block in which a thread draws a tally, so that the run is not held up.

    Whatever ends the block, the line is gone after it. Raises nothing of its own.
    """
    drawer, over = Drawer(tally, title, sys.stderr), threading.Event()

    def follow() -> None:
        while not over.wait(EVERY):
            drawer.draw()

    thread = threading.Thread(target=follow, name="relquery progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        drawer.close()


@contextmanager
def _logs_above(stream: TextIO) -> Iterator[None]:
    """A block in which handlers of logs that write to a stream write above what is drawn there.

    rich replaces sys.stderr, but handlers keep the stream that they were made with.
    """
    moved: list[logging.StreamHandler[Any]] = []
    loggers = [logging.getLogger(), *map(logging.getLogger, list(logging.root.manager.loggerDict))]
    for handler in {id(handler): handler for each in loggers for handler in each.handlers}.values():
        if isinstance(handler, logging.StreamHandler) and handler.stream is stream:
            handler.setStream(sys.stderr)
            moved.append(handler)
    try:
        yield
    finally:
        for handler in moved:
            handler.setStream(stream)
