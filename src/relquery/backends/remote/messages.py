"""What goes through the pipe between an engine's process and those who ask it.

Both ends are this program, so messages are pickled. They are sent in lists: one write a step.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from relquery.backends.local.streaming import Piece
from relquery.backends.service.serving import Submission
from relquery.engine.requests.relquery import Latency
from relquery.prompt import Answer


class Submit(NamedTuple):
    """A job; its events bear its number."""

    number: int
    submission: Submission


class Cancel(NamedTuple):
    """End what is open of a job. Replied to, under a number of its own, unless that is 0."""

    number: int
    reply: int = 0


class Forecast(NamedTuple):
    """How long a job still takes."""

    number: int
    reply: int


class Ask(NamedTuple):
    """A question to the backend, see relquery.backends.service.questions."""

    reply: int
    question: str
    given: tuple[Any, ...]


class Stop(NamedTuple):
    """End the process once what is open is cancelled."""


Command = Submit | Cancel | Forecast | Ask | Stop


class Pieced(NamedTuple):
    """See Sink.piece."""

    number: int
    at: int
    piece: Piece


class Answered(NamedTuple):
    """See Sink.add."""

    number: int
    at: int
    answer: Answer


class Ended(NamedTuple):
    """See Sink.end."""

    number: int
    latency: Latency | None
    error: BaseException | None = None


class Replied(NamedTuple):
    """What was asked for, or why it cannot be told."""

    reply: int
    value: Any
    error: BaseException | None = None


class Ready(NamedTuple):
    """The engine has its model, or why it could not be loaded. value: its Facts."""

    value: Any
    error: BaseException | None = None


Event = Pieced | Answered | Ended | Replied | Ready


def send(pipe: Connection, messages: Sequence[Command] | Sequence[Event]) -> None:
    """Put messages into a pipe. Raises OSError, and what cannot be pickled raises."""
    pipe.send_bytes(pickle.dumps(messages, pickle.HIGHEST_PROTOCOL))


def send_events(pipe: Connection, events: Sequence[Event]) -> None:
    """Put events into a pipe. An error that cannot be pickled is sent as its text."""
    try:
        send(pipe, events)
    except OSError:
        raise
    except Exception:
        send(pipe, [_plain(each) for each in events])


def receive(pipe: Connection) -> list[Any]:
    """The next messages. Raises EOFError or OSError where the other end is gone."""
    found: list[Any] = pickle.loads(pipe.recv_bytes())
    return found


def _plain(message: Any) -> Any:
    """A message that can be pickled."""
    try:
        pickle.dumps(message)
    except Exception as error:
        cause = getattr(message, "error", None) or error
        told = RuntimeError(f"{type(cause).__name__}: {cause}")
        if isinstance(message, Replied):
            return Replied(message.reply, None, told)
        return message._replace(error=told)
    return message
