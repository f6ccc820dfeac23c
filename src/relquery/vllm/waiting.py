"""vLLM's queue of waiting requests, where any request can leave at once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

from vllm.v1.core.sched.request_queue import RequestQueue


class Waiting(RequestQueue):  # type: ignore[misc]
    """Requests in order. All but iterating is O(1) a request, as policies begin them in any order:
    in vLLM's own queue, each that leaves is searched from the front, among thousands."""

    def __init__(self, requests: Iterable[Any] = ()) -> None:
        self._requests: OrderedDict[Any, None] = OrderedDict.fromkeys(requests)

    def add_request(self, request: Any) -> None:
        """Add a request at the end."""
        self._requests[request] = None

    def pop_request(self) -> Any:
        """Take the first request. Raises KeyError if there is none."""
        return self._requests.popitem(last=False)[0]

    def peek_request(self) -> Any:
        """The first request. Raises IndexError if there is none."""
        for request in self._requests:
            return request
        raise IndexError("nobody waits")

    def prepend_request(self, request: Any) -> None:
        """Add a request at the front."""
        self._requests[request] = None
        self._requests.move_to_end(request, last=False)

    def prepend_requests(self, requests: Iterable[Any]) -> None:
        """Add requests at the front, one after another: the last one comes first."""
        for request in requests:
            self.prepend_request(request)

    def remove_request(self, request: Any) -> None:
        """Remove a request. Raises KeyError if it is not there."""
        del self._requests[request]

    def remove_requests(self, requests: Iterable[Any]) -> None:
        """Remove those of the requests that are there."""
        for request in requests:
            self._requests.pop(request, None)

    def __contains__(self, request: object) -> bool:
        return request in self._requests

    def __len__(self) -> int:
        return len(self._requests)

    def __bool__(self) -> bool:
        return bool(self._requests)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._requests)
