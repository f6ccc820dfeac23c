"""Queues of waiting requests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any


class RequestQueue(ABC):
    @abstractmethod
    def add_request(self, request: Any) -> None: ...

    @abstractmethod
    def pop_request(self) -> Any: ...

    @abstractmethod
    def peek_request(self) -> Any: ...

    @abstractmethod
    def prepend_request(self, request: Any) -> None: ...

    @abstractmethod
    def prepend_requests(self, requests: Iterable[Any]) -> None: ...

    @abstractmethod
    def remove_request(self, request: Any) -> None: ...

    @abstractmethod
    def remove_requests(self, requests: Iterable[Any]) -> None: ...

    @abstractmethod
    def __bool__(self) -> bool: ...

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __iter__(self) -> Iterator[Any]: ...


class FCFSRequestQueue(deque, RequestQueue):  # type: ignore[type-arg]
    def add_request(self, request: Any) -> None:
        self.append(request)

    def pop_request(self) -> Any:
        return self.popleft()

    def peek_request(self) -> Any:
        return self[0]

    def prepend_request(self, request: Any) -> None:
        self.appendleft(request)

    def prepend_requests(self, requests: Iterable[Any]) -> None:
        self.extendleft(requests)

    def remove_request(self, request: Any) -> None:
        self.remove(request)

    def remove_requests(self, requests: Iterable[Any]) -> None:
        for request in requests:
            if request in self:
                self.remove(request)

    def __bool__(self) -> bool:
        return len(self) > 0

    def __len__(self) -> int:
        return super().__len__()

    def __iter__(self) -> Iterator[Any]:
        return super().__iter__()
