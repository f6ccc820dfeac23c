"""Runs a frame in another thread while an event loop goes on; one at a time per connection."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from relquery.connection import Connection
from relquery.progress.watch import Checked
from relquery.sql.temp_tables import Place

T = TypeVar("T")


class _Stopped(Exception):  # noqa: N818
    """Ends a query whose task was cancelled."""


@dataclass(slots=True)
class _Run:
    """A run in another thread.

    place: in the line for the connection. is_in: whether it has its turn, so that it may be
    interrupted. lock: held while these change, so that no other run is interrupted.
    """

    connection: Connection
    place: Place
    is_in: bool = False
    is_stopped: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, function: Callable[..., T], options: Mapping[str, Any]) -> T:
        given = dict(options)
        if function.__name__ != "explain":
            given["progress"] = Checked(self._tell, given.get("progress", self.connection.progress))
        self.place.wait()
        self._begin()
        try:
            return function(**given)
        except KeyboardInterrupt:  # DuckDB was interrupted
            self._check()
            raise
        finally:
            self._end()

    def stop(self) -> bool:
        """End the query as soon as an answer arrives, or at once if DuckDB works.

        One that waits leaves the line. Gives whether it had begun.
        """
        with self.lock:
            self.is_stopped = True
            if self.is_in:
                self.connection.database.connection.interrupt()
            elif self._waits:
                self.connection.lent.turn.leave(self.place)
            return self.is_in

    @property
    def _waits(self) -> bool:
        return self.place in self.connection.lent.turn.line

    def _begin(self) -> None:
        with self.lock:
            self._check()
            self.is_in = True

    def _end(self) -> None:
        with self.lock:
            self.is_in = False
            self.connection.lent.turn.leave(self.place)

    def _tell(self, stage: str, done: int, total: int) -> None:
        self._check()

    def _check(self) -> None:
        if self.is_stopped:
            raise _Stopped


async def apart(
    connection: Connection, function: Callable[..., T], options: Mapping[str, Any]
) -> T:
    """What a function gives, computed in another thread.

    If the task is cancelled, the query ends at the next answer, or at once if it waits for its
    turn. The connection stays usable, and the ledger has the answers that came.
    """
    run = _Run(connection, connection.lent.turn.ask())
    own = ThreadPoolExecutor(1)  # those of the loop may all wait for a frame that has none
    context = contextvars.copy_context()
    work = asyncio.get_running_loop().run_in_executor(own, context.run, run, function, options)
    own.shutdown(wait=False)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        if run.stop():
            await asyncio.wait([work])
            work.exception()  # it was asked to end
        else:
            work.cancel()
        raise
