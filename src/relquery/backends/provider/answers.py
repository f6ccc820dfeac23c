"""Answers on their way from a thread that talks to a server to the one that waits for them."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Thread
from typing import Any

from relquery.prompt import Answer

_STOP_SECONDS = 5.0

Item = tuple[int, Answer] | Exception | None


def _unheard(index: int, answer: Answer) -> None:
    pass


@dataclass(slots=True)
class Mailbox:
    """What has come: answers, warnings, or what ended the work; None comes last."""

    heard: Callable[[int, Answer], None] = _unheard
    items: SimpleQueue[Item] = field(default_factory=SimpleQueue)

    def deliver(self, index: int, answer: Answer) -> None:
        """Put in an answer."""
        self.heard(index, answer)
        self.items.put((index, answer))


class Answers(Iterator[tuple[int, Answer]]):
    """(index, answer) as they come, see Arrivals. Work begins when the first is asked for.

    serve: puts all answers into a mailbox, and what ended the work.
    """

    def __init__(self, serve: Callable[[Mailbox], Coroutine[Any, Any, None]]) -> None:
        self._box = Mailbox()
        # The thread knows the mailbox alone, so that it ends when nobody holds the iterator.
        self._taken = _take(self._box, serve)

    @property
    def heard(self) -> Callable[[int, Answer], None]:
        """Called with each answer, in the thread that talks to the server."""
        return self._box.heard

    @heard.setter
    def heard(self, heard: Callable[[int, Answer], None]) -> None:
        self._box.heard = heard

    def __next__(self) -> tuple[int, Answer]:
        return next(self._taken)

    def close(self) -> None:
        """Cancel what is under way."""
        self._taken.close()


def _take(
    box: Mailbox, serve: Callable[[Mailbox], Coroutine[Any, Any, None]]
) -> Generator[tuple[int, Answer], None, None]:
    stop = _in_background(serve(box))
    try:
        while (item := box.items.get()) is not None:
            if isinstance(item, Warning):
                warnings.warn(item, stacklevel=2)
            elif isinstance(item, Exception):
                raise item
            else:
                yield item
    finally:
        stop()


def _in_background(work: Coroutine[Any, Any, None]) -> Callable[[], None]:
    """Run a coroutine in a thread of its own; gives a function that cancels it and waits."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(work)

    def run() -> None:
        with closing(loop):
            with suppress(asyncio.CancelledError):
                loop.run_until_complete(task)
            loop.run_until_complete(loop.shutdown_asyncgens())

    def stop() -> None:
        with suppress(RuntimeError):  # the loop is closed: nothing is left to cancel
            loop.call_soon_threadsafe(task.cancel)
        thread.join(_STOP_SECONDS)

    # A daemon, so that a name lookup that hangs does not keep the process.
    thread = Thread(target=run, name="relquery-provider", daemon=True)
    thread.start()
    return stop
