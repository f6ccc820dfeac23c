"""The process of an engine: takes commands from a pipe, and sends back what comes of them."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any

from relquery.backends.local.streaming import Piece
from relquery.backends.remote.garbage import settle
from relquery.backends.remote.messages import (
    Answered,
    Ask,
    Cancel,
    Ended,
    Event,
    Forecast,
    Pieced,
    Ready,
    Replied,
    Stop,
    Submit,
    receive,
    send_events,
)
from relquery.backends.service.questions import answer_of
from relquery.backends.service.worker import Worker
from relquery.engine.requests.relquery import Latency
from relquery.prompt import Answer


def host(
    pipe: Connection, model: str, options: Mapping[str, Any], prepare: Callable[[], None]
) -> None:
    """The main function of the process; it ends when the other end of the pipe is closed.

    prepare: called first; sets up the log.
    """
    # Ctrl-C reaches all processes of a terminal, and what stops a service sends SIGTERM to all of
    # its processes; it is the asker who decides when to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()
    prepare()
    try:
        outbox = _Outbox(pipe)
        worker = _open(outbox, model, options)
        if worker is not None:
            settle()
            _Desk(worker, outbox).serve(pipe)
    except (EOFError, OSError):
        pass  # nobody is left to be told
    os._exit(0)  # other threads may still compute


def _end_with_parent() -> None:
    """Exit with the parent process, even while the model loads and the pipe is not read."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)


def _open(outbox: _Outbox, model: str, options: Mapping[str, Any]) -> Worker | None:
    from relquery.backends.local.open import load_backend

    try:
        backend = load_backend(model, **options)
        backend.reserve()  # a service that lacks memory should say so now
        facts = answer_of(backend, "facts", ())
    except Exception as error:
        outbox.put(Ready(None, error))
        outbox.flush()
        return None
    outbox.put(Ready(facts))
    outbox.flush()
    return Worker(backend, outbox.flush)


class _Outbox:
    """Events of a step, sent together. Only one thread at a time uses it."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._events: list[Event] = []

    def put(self, event: Event) -> None:
        self._events.append(event)

    def flush(self) -> None:
        if not self._events:
            return
        events, self._events = self._events, []
        try:
            send_events(self._pipe, events)
        except OSError:
            os._exit(0)  # the asker is gone


class _Sent:
    """A Sink whose events go through the pipe."""

    def __init__(self, desk: _Desk, number: int) -> None:
        self._desk, self._number = desk, number

    def piece(self, index: int, piece: Piece) -> None:
        self._desk.outbox.put(Pieced(self._number, index, piece))

    def add(self, index: int, answer: Answer) -> None:
        self._desk.outbox.put(Answered(self._number, index, answer))

    def end(self, latency: Latency | None, error: BaseException | None = None) -> None:
        self._desk.outbox.put(Ended(self._number, latency, error))
        self._desk.jobs.pop(self._number, None)


class _Desk:
    """Passes commands to the engine's thread."""

    def __init__(self, worker: Worker, outbox: _Outbox) -> None:
        self.outbox = outbox
        self.jobs: dict[int, _Sent] = {}
        self._worker = worker

    def serve(self, pipe: Connection) -> None:
        """Take commands until one says to stop. Raises EOFError when the asker is gone."""
        while True:
            for command in receive(pipe):
                if isinstance(command, Stop):
                    self._worker.stop()
                    return
                self._take(command)

    def _take(self, command: Submit | Cancel | Forecast | Ask) -> None:
        match command:
            case Submit(number, submission):
                sink = self.jobs[number] = _Sent(self, number)
                self._worker.submit(submission, sink)
            case Cancel(number, reply):
                self._reply(reply, lambda: self._worker.end(self._job(number)))
            case Forecast(number, reply):
                self._reply(reply, lambda: self._worker.foresee(self._job(number)))
            case Ask(reply, question, given):
                self._reply(reply, lambda: self._worker.told(question, given))

    def _job(self, number: int) -> _Sent:
        """A job's sink; for one that has ended, a sink that the engine does not know."""
        return self.jobs.get(number) or _Sent(self, number)

    def _reply(self, reply: int, find: Any) -> None:
        def command() -> None:
            try:
                found = Replied(reply, find())
            except Exception as error:
                found = Replied(reply, None, error)
            if reply:
                self.outbox.put(found)

        self._worker.post(command)
