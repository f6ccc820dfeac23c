"""What an engine in another process was asked and has not answered yet."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from threading import Lock
from typing import Protocol

from relquery.backends.remote.messages import (
    Answered,
    Ask,
    Command,
    Ended,
    Event,
    Forecast,
    Pieced,
    Replied,
    Submit,
)
from relquery.backends.remote.tally import Tally
from relquery.backends.service.delivery import Sink


class Bell(Protocol):
    """Where a reply goes; a thread of the link puts it in, and must not be held up."""

    def put(self, reply: Replied, /) -> object:
        """The reply has come."""


class OpenJobs:
    """Jobs and questions by number. Any thread may use it.

    tally: what jobs were answered.
    """

    def __init__(self) -> None:
        self.tally = Tally()
        self._numbers = count(1)
        self._sinks: dict[int, Sink] = {}
        self._number_of: dict[Sink, int] = {}
        self._bells: dict[int, Bell] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        """Jobs."""
        return len(self._sinks)

    def begin(self, sink: Sink) -> int:
        """A number for a new job."""
        with self._lock:
            number = next(self._numbers)
            self._sinks[number], self._number_of[sink] = sink, number
        return number

    def number_of(self, sink: Sink) -> int | None:
        """A job's number; None if it has ended."""
        return self._number_of.get(sink)

    def forget(self, sink: Sink) -> int | None:
        """Nobody wants to hear of a job any more: its number, None if it has ended."""
        with self._lock:
            number = self._number_of.pop(sink, None)
            if number is not None:
                del self._sinks[number]
        return number

    def expect(self, bell: Bell) -> int:
        """A number for a new question. bell: gets the reply."""
        with self._lock:
            number = next(self._numbers)
            self._bells[number] = bell
        return number

    def dismiss(self, number: int) -> None:
        """Nobody waits for a reply any more."""
        with self._lock:
            self._bells.pop(number, None)

    def wants(self, command: Command) -> bool:
        """Whether a command's job or question has not ended with the process it was meant for."""
        match command:
            case Submit(number):
                return number in self._sinks
            case Ask(reply) | Forecast(reply=reply):
                return reply in self._bells
        return True

    def reply(self, reply: Replied) -> None:
        """Hand out a reply."""
        bell = self._bells.get(reply.reply)
        if bell is not None:
            bell.put(reply)

    def hand_out(self, events: Sequence[Event]) -> None:
        """Tell the sinks what has come of their jobs."""
        for event in events:
            match event:
                case Pieced(number, index, piece):
                    if (sink := self._sinks.get(number)) is not None:
                        sink.piece(index, piece)
                case Answered(number, index, answer):
                    self.tally.add(answer)
                    if (sink := self._sinks.get(number)) is not None:
                        sink.add(index, answer)
                case Ended(number, latency, error):
                    if (sink := self._end(number)) is not None:
                        sink.end(latency, error)

    def endings(self, error: BaseException) -> list[Ended]:
        """Events that end all jobs that are open now."""
        with self._lock:
            return [Ended(number, None, error) for number in self._sinks]

    def refuse_questions(self, error: BaseException) -> None:
        """Answer all questions with an error."""
        with self._lock:
            bells = list(self._bells.items())
        for number, bell in bells:
            bell.put(Replied(number, None, error))

    def _end(self, number: int) -> Sink | None:
        with self._lock:
            sink = self._sinks.pop(number, None)
            if sink is not None:
                self._number_of.pop(sink, None)
        return sink
