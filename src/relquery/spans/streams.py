"""Makes several backend calls at once and returns their answers as they arrive."""

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
    """Open calls, polled in turn. In one engine, polling one call also advances the others."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._streams: deque[_Stream[T]] = deque()

    def __bool__(self) -> bool:
        return bool(self._streams)

    def send(self, prompts: Sequence[Prompt], sampling: Sampling, labels: Sequence[T]) -> None:
        """Send prompts in one call; each answer comes back with the prompt's label."""
        answers = self._backend.answer(prompts, sampling)
        # A new call goes first: a backend may not start until it is asked for an answer.
        self._streams.appendleft(_Stream(answers, dict(enumerate(labels))))

    def receive(self) -> list[tuple[T, Answer]]:
        """Wait for the next answer; several if a call ends without giving all its answers."""
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
        """Cancel all open calls."""
        while self._streams:
            cancel(self._streams.pop().answers)
