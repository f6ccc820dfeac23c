"""Answers on their way from a thread that talks to a server to the one that waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Thread
from typing import Any

from relquery.backends.base import Heard
from relquery.errors import warn
from relquery.prompt import Answer

_STOP_SECONDS = 5.0

Item = tuple[int, Answer] | Exception | None


@dataclass(frozen=True, slots=True)
class Mailbox:
    """What has come: answers, warnings, or what ended the work; None comes last.

    heard: called with each answer, in the thread that talks to the server.
    """

    heard: Heard
    items: SimpleQueue[Item] = field(default_factory=SimpleQueue)

    def put(self, index: int, answer: Answer) -> None:
        """Put in an answer that `heard` was told of."""
        self.items.put((index, answer))

    def deliver(self, index: int, answer: Answer) -> None:
        """Tell `heard` of an answer, and put it in."""
        self.heard(index, answer)
        self.put(index, answer)


def taken(
    box: Mailbox, serve: Callable[[Mailbox], Coroutine[Any, Any, None]]
) -> Generator[tuple[int, Answer], None, None]:
    """(index, answer) as they come. Work begins when the first is asked for.

    serve: puts all answers into the mailbox, and what ended the work. Its thread knows the mailbox
        alone, so that it ends when nobody holds the generator.
    """
    stop = _in_background(serve(box))
    try:
        while (item := box.items.get()) is not None:
            if isinstance(item, Warning):
                warn(item)
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
            loop.run_until_complete(_others())
            loop.run_until_complete(loop.shutdown_asyncgens())

    def stop() -> None:
        with suppress(RuntimeError):  # the loop is closed: nothing is left to cancel
            loop.call_soon_threadsafe(task.cancel)
        thread.join(_STOP_SECONDS)

    # A daemon, so that a name lookup that hangs does not keep the process.
    thread = Thread(target=run, name="relquery-provider", daemon=True)
    thread.start()
    return stop


async def _others() -> None:
    """Wait for what was shielded when the work was cancelled: connections that close."""
    if others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)
