"""Tables that frames lend a connection, and the line of threads that use it."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

from relquery.errors import RelqueryError
from relquery.sql import tables as hosts
from relquery.sql.host.database import Database
from relquery.sql.names import quoted

Place = threading.Event
"""A place in the line. It is set when the turn has come."""


@dataclass(eq=False, slots=True)
class FairLock:
    """A lock that goes to those who ask for it in their order, and whose line can be left."""

    line: deque[Place] = field(default_factory=deque)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self) -> Place:
        """A place at the end of the line; to be left, whether its turn has come or not."""
        place = Place()
        with self.lock:
            self.line.append(place)
            self.line[0].set()
        return place

    def leave(self, place: Place) -> None:
        """Give the turn to the next, or stop waiting for it, which wakes who waits at the place."""
        with self.lock:
            self.line.remove(place)
            if self.line:
                self.line[0].set()
        place.set()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """A block that has the turn."""
        place = self.ask()
        try:
            place.wait()
            yield
        finally:
            self.leave(place)


NAME = "frame_"
"""Before the number of a table that a frame has registered."""


@dataclass(eq=False, slots=True, weakref_slot=True)
class Lent:
    """Data of a frame."""

    data: Any
    table: pa.Table | None
    """Its rows when the frame was made; None for a file, and for a polars LazyFrame."""
    name: str = ""
    """Of the table, once it is registered."""
    collected: Any = None
    """The rows of a LazyFrame, which is collected when it is registered."""

    def is_of(self, data: object, table: pa.Table | None) -> bool:
        """Whether the same data still has the same rows."""
        if isinstance(data, Path):
            return isinstance(self.data, Path) and data == self.data
        is_equal = self.table is table or (None not in (self.table, table) and self.table == table)
        return data is self.data and is_equal


@dataclass(slots=True)
class LentTables:
    """All tables that frames have lent one connection.

    gone: names whose frames are gone; they are dropped before the next one is registered. turn:
    held by the frame that runs in another thread.
    """

    living: weakref.WeakSet[Lent] = field(default_factory=weakref.WeakSet)
    gone: list[str] = field(default_factory=list)
    turn: FairLock = field(default_factory=FairLock)

    def lend(self, data: Any, table: pa.Table | None) -> Lent:
        """The table of some data, the same for two frames over the same rows."""
        for known in list(self.living):
            if known.is_of(data, table):
                return known
        lent = Lent(data, table)
        self.living.add(lent)
        return lent

    def register(self, lent: Lent, database: Database) -> str:
        """The name of a table in queries. Raises TableError if it cannot be read."""
        with database.held():
            self.sweep(database)
            if not lent.name:
                taken = {name.lower() for name in database.tables()}
                name = next(
                    candidate
                    for candidate in map(f"{NAME}{{}}".format, count(1))
                    if candidate not in taken
                )
                if lent.table is None and hasattr(lent.data, "collect"):
                    lent.collected = lent.data.collect()
                data = lent.data if lent.collected is None else lent.collected
                data = data if lent.table is None else lent.table
                hosts.register(database, name, data, called="rq.frame")
                lent.name = name
                ended = weakref.finalize(lent, self.gone.append, name)
                ended.atexit = False
            return lent.name

    def names(self) -> set[str]:
        """Of the tables that are registered, which no user has named."""
        return {table.name for table in list(self.living)}

    def sweep(self, database: Database) -> None:
        """Forget tables whose frames are gone."""
        while self.gone:
            name = self.gone.pop()
            with contextlib.suppress(RelqueryError):
                database.unregister(name)
            with contextlib.suppress(RelqueryError):  # the view of a file
                database.execute(f"DROP VIEW IF EXISTS temp.{quoted(name)}")
