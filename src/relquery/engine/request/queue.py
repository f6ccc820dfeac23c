"""Waiting requests, in the order in which they will run."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

import numpy as np

from relquery.arrays import Int64s
from relquery.engine.request.request import Request


class Queue:
    """An ordered set of requests: joining, leaving from anywhere and being put first are O(1).

    `lengths` and `pick` need an array. It is kept while requests only leave from the front, and
    rebuilt otherwise. changes: requests that joined or left since the owner emptied it; only
    recorded with `logs`, so that a queue whose owner does not empty it does not grow.
    """

    def __init__(self, *, logs: bool = False) -> None:
        self.changes: list[Request] = []
        self._logs = logs
        self._requests: OrderedDict[Request, None] = OrderedDict()
        self._array: list[Request] = []
        self._lengths: Int64s = np.empty(0, np.int64)
        self._gone = 0
        self._stale = False

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)

    def __contains__(self, request: object) -> bool:
        return request in self._requests

    def append(self, request: Request) -> None:
        """Add a request at the end of the queue."""
        self._requests[request] = None
        self._change(request)

    def put_first(self, request: Request) -> None:
        """Add a request at the front of the queue."""
        self._requests[request] = None
        self._requests.move_to_end(request, last=False)
        self._change(request)

    def remove(self, request: Request) -> None:
        """Remove a request. Raises KeyError if it is not waiting."""
        del self._requests[request]
        front = not self._stale and self._array[self._gone] is request
        self._change(request, stale=not front)
        self._gone += front

    @property
    def lengths(self) -> Int64s:
        """(n,) tokens of prompt and output of each request, in order."""
        self._refresh()
        return self._lengths[self._gone :]

    def pick(self, indices: Sequence[int]) -> list[Request]:
        """The requests at these places, 0 being the front."""
        self._refresh()
        return [self._array[self._gone + index] for index in indices]

    def _change(self, request: Request, stale: bool = True) -> None:
        self._stale = self._stale or stale
        if self._logs:
            self.changes.append(request)

    def _refresh(self) -> None:
        if self._stale:
            self._array = list(self._requests)
            self._lengths = np.array([request.length for request in self._array], np.int64)
            self._gone, self._stale = 0, False
