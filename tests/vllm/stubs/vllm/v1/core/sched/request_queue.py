"""A queue."""

from __future__ import annotations

from collections import deque
from typing import Any


class RequestQueue(deque):  # type: ignore[type-arg]
    def add_request(self, request: Any) -> None:
        self.append(request)

    def prepend_request(self, request: Any) -> None:
        self.appendleft(request)

    def remove_request(self, request: Any) -> None:
        self.remove(request)


def create_request_queue(policy: str) -> RequestQueue:
    assert policy == "fcfs"
    return RequestQueue()
