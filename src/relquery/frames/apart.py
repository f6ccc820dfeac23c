"""Runs a frame in another thread while an event loop goes on; one at a time per connection."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from relquery.connection import Connection

T = TypeVar("T")


class _Stopped(Exception):  # noqa: N818
    """Ends a query whose task was cancelled."""


@dataclass(slots=True)
class _Run:
    """A run in another thread. is_in: whether it has its turn, so that it may be interrupted."""

    connection: Connection
    stopped: threading.Event = field(default_factory=threading.Event)
    is_in: threading.Event = field(default_factory=threading.Event)

    def __call__(self, function: Callable[..., T], options: Mapping[str, Any]) -> T:
        given = dict(options)
        if function.__name__ != "explain":
            given["progress"] = self._watched(given.get("progress"))
        with self.connection.lent.turn:
            self._check()
            self.is_in.set()
            try:
                return function(**given)
            except KeyboardInterrupt:  # DuckDB was interrupted
                self._check()
                raise
            finally:
                self.is_in.clear()

    def stop(self) -> None:
        """End the query as soon as an answer arrives, or at once if DuckDB works."""
        self.stopped.set()
        if self.is_in.is_set():
            self.connection.database.connection.interrupt()

    def _watched(self, progress: Any) -> Callable[[str, int, int], None]:
        def watch(stage: str, done: int, total: int) -> None:
            self._check()
            if progress is not None:
                progress(stage, done, total)

        return watch

    def _check(self) -> None:
        if self.stopped.is_set():
            raise _Stopped


async def apart(
    connection: Connection, function: Callable[..., T], options: Mapping[str, Any]
) -> T:
    """What a function gives, computed in another thread.

    If the task is cancelled, the query ends at the next answer. The connection stays usable, and
    the ledger has the answers that came.
    """
    run = _Run(connection)
    work = asyncio.ensure_future(asyncio.to_thread(run, function, options))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        run.stop()
        await asyncio.wait([work])
        work.exception()  # it was asked to end
        raise
