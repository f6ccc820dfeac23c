"""Several calls of a backend at once, their answers as they come."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from relquery.backends.base import Answers, Backend, cancel
from relquery.prompt import Answer, Finish, Prompt, Sampling

T = TypeVar("T")
_NO_ANSWER = Answer(None, Finish.ERROR, "The backend gave no answer.")


@dataclass(slots=True, eq=False)
class _Stream(Generic[T]):
    answers: Answers
    open: dict[int, T]


class Streams(Generic[T]):
    """Open calls, asked in turn. What one call computes moves the others along in one engine."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._streams: deque[_Stream[T]] = deque()

    def __bool__(self) -> bool:
        return bool(self._streams)

    def send(self, prompts: Sequence[Prompt], sampling: Sampling, labels: Sequence[T]) -> None:
        """Ask prompts in one call; each answer comes back with the prompt's label."""
        answers = self._backend.answer(prompts, sampling)
        # A new call goes first: until it is asked for an answer, a backend may not have begun.
        self._streams.appendleft(_Stream(answers, dict(enumerate(labels))))

    def receive(self) -> list[tuple[T, Answer]]:
        """Wait for the next answer; several where a call ends without having given them."""
        stream = self._streams.popleft()
        for index, answer in stream.answers:
            if index in stream.open:
                label = stream.open.pop(index)
                if stream.open:
                    self._streams.append(stream)
                else:
                    cancel(stream.answers)
                return [(label, answer)]
        return [(label, _NO_ANSWER) for label in stream.open.values()]

    def close(self) -> None:
        """Cancel what is open."""
        while self._streams:
            cancel(self._streams.pop().answers)
