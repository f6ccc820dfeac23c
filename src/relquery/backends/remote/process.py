"""The process of an engine: its main function, the pipe to it, and what goes through the pipe.

Both ends are this program, so messages are pickled. They are sent in lists: one write a step.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing.connection import Connection
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from relquery.backends.local.asking import Piece
from relquery.backends.local.host import EngineControl, Facts, Sink, Submission
from relquery.engine.requests.relquery import Latency
from relquery.errors import ModelError
from relquery.prompt import Answer

if TYPE_CHECKING:
    from relquery.backends.local.service import Worker

YOUNG = 10_000
"""New objects after which the garbage collector looks at the youngest; Python's own is 700."""


class Submit(NamedTuple):
    """A job; its events bear its number."""

    number: int
    submission: Submission


class Ask(NamedTuple):
    """A question to the backend, see QUESTIONS, or "cancel" with a job's number."""

    reply: int
    """The number under which it is replied to; 0 if nobody wants to know."""
    question: str
    given: tuple[Any, ...]


class Stop(NamedTuple):
    """End the process once what is open is cancelled."""


Command = Submit | Ask | Stop


class Told(NamedTuple):
    """A call of a job's Sink."""

    number: int
    method: str
    given: tuple[Any, ...]


class Replied(NamedTuple):
    """The reply to a command, or why there is none. The first, under 0, are the model's Facts."""

    reply: int
    value: Any
    error: BaseException | None = None


Event = Told | Replied


def send(pipe: Connection, messages: Sequence[Any]) -> None:
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
    commands: list[Any] = pickle.loads(pipe.recv_bytes())
    return commands


def _plain(event: Event) -> Event:
    """An event that can be pickled."""
    try:
        pickle.dumps(event)
    except Exception as why:
        error = event.given[-1] if isinstance(event, Told) else event.error
        cause = error if isinstance(error, BaseException) else why
        told = RuntimeError(f"{type(cause).__name__}: {cause}")
        if isinstance(event, Replied):
            return Replied(event.reply, None, told)
        return event._replace(given=(*event.given[:-1], told))
    return event


class EngineProcess:
    """One process, from its start to its end, and the pipe to it. For its attributes see there."""

    def __init__(
        self, model: str, options: Mapping[str, Any], prepare: Callable[[], None] | None = None
    ) -> None:
        """Start it; it then loads the model.

        prepare: called in the process first, e.g. to set up its log; can be pickled.
        """
        self.model, self.options, self.prepare = model, dict(options), prepare
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        level = logging.getLogger().getEffectiveLevel()
        self._process = context.Process(
            target=host,
            args=(theirs, model, options, prepare or partial(logging.basicConfig, level=level)),
            name="relquery-engine",
            daemon=True,
        )
        self._process.start()
        theirs.close()  # so that the pipe ends when the process does

    @property
    def pid(self) -> int | None:
        """Its number in the operating system."""
        number: int | None = self._process.pid
        return number

    def await_ready(self) -> Facts:
        """Wait until it has the model. Raises what kept it from loading it."""
        try:
            (event,) = receive(self._pipe)
        except KeyboardInterrupt:
            self._process.kill()  # it would load the model to the end
            raise
        except (EOFError, OSError):
            raise ModelError(
                f"The engine's process ended while it loaded the model{self.join()}."
            ) from None
        if event.error is not None:
            self._process.join()
            raise event.error
        facts: Facts = event.value
        return facts

    def send(self, commands: Sequence[Command]) -> None:
        """Raises OSError if it is gone, and what cannot be pickled raises."""
        send(self._pipe, commands)

    def receive(self) -> list[Any]:
        """Its next events. Raises EOFError or OSError if it is gone."""
        return receive(self._pipe)

    def join(self) -> str:
        """Wait for its end; how it ended, to follow "the process ended"."""
        self._process.join()
        code = self._process.exitcode
        if code is None or code == 0:
            return ""
        return f" with signal {-code}" if code < 0 else f" with exit code {code}"

    def kill(self) -> None:
        """End it, if it has not ended."""
        if self._process.is_alive():
            self._process.kill()

    def close(self) -> None:
        """Close the pipe."""
        self._pipe.close()


# What follows runs in the process.


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
        outbox = Outbox(pipe)
        worker = opened(outbox, model, options)
        if worker is not None:
            settle()
            Desk(worker, outbox.put).serve(pipe)
            worker.stop()
    except (EOFError, OSError):
        pass  # nobody is left to be told
    os._exit(0)  # other threads may still compute


def settle() -> None:
    """Leave what a process that serves has loaded out of all later collections of garbage.

    A collection of everything takes a fifth of a second with the libraries that are loaded, and
    there are several a minute under load.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG)


def _end_with_parent() -> None:
    """Exit with the parent process, even while the model loads and the pipe is not read."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)


def opened(outbox: Outbox, model: str, options: Mapping[str, Any]) -> Worker | None:
    """An engine with its model, of which the asker is told; None if it cannot be opened."""
    from relquery.backends.local.open import load_backend
    from relquery.backends.local.service import Worker

    try:
        backend = load_backend(model, **options)
        backend.reserve()  # a service that lacks memory should say so now
        ready = Replied(0, backend.facts)
    except Exception as error:
        backend, ready = None, Replied(0, None, error)
    outbox.put(ready)
    outbox.flush()
    return None if backend is None else Worker(backend, outbox.flush)


class Outbox:
    """Events of a step, sent together. Only one thread at a time uses it."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._events: list[Event] = []

    def put(self, event: Event) -> None:
        """Have an event sent with the next others."""
        self._events.append(event)

    def flush(self) -> None:
        """Send what there is."""
        if self._events:
            events, self._events = self._events, []
            try:
                send_events(self._pipe, events)
            except OSError:
                self.abandoned()

    def abandoned(self) -> None:
        """The asker is gone."""
        os._exit(0)


class Hosting(Protocol):
    """The side that answers commands: an engine's Worker, or who stands between it and an asker."""

    @property
    def engine(self) -> EngineControl:
        """The engine as the thread sees it which runs what is posted."""

    def submit(self, submission: Submission, sink: Sink) -> object:
        """Queue a job; its answers go to the sink."""

    def post(self, command: Callable[[], object]) -> object:
        """Have that thread run a command."""


class _Sent:
    """A Sink whose calls go through the pipe."""

    def __init__(self, desk: Desk, number: int) -> None:
        self._desk, self._number = desk, number

    def piece(self, index: int, piece: Piece) -> None:
        self._desk.put(Told(self._number, "piece", (index, piece)))

    def add(self, index: int, answer: Answer) -> None:
        self._desk.put(Told(self._number, "add", (index, answer)))

    def end(self, latency: Latency | None, error: BaseException | None = None) -> None:
        self._desk.put(Told(self._number, "end", (latency, error)))
        self._desk.jobs.pop(self._number, None)


class Desk:
    """A desk that passes commands on to the side that answers them. put: has an event sent soon.
    jobs: those that are open, by number."""

    def __init__(self, hosting: Hosting, put: Callable[[Event], object]) -> None:
        self.put = put
        self.jobs: dict[int, Sink] = {}
        self._hosting = hosting

    def serve(self, pipe: Connection) -> None:
        """Take commands until one says to stop. Raises EOFError when the asker is gone."""
        while True:
            for command in receive(pipe):
                if isinstance(command, Stop):
                    return
                self.take(command)

    def take(self, command: Submit | Ask) -> None:
        """Pass a command on."""
        match command:
            case Submit(number, submission):
                sink = self.jobs[number] = _Sent(self, number)
                self._hosting.submit(submission, sink)
            case Ask():
                self._hosting.post(partial(self._reply, command))

    def _reply(self, asked: Ask) -> None:
        try:
            reply = Replied(asked.reply, self._told(asked.question, asked.given))
        except Exception as error:
            reply = Replied(asked.reply, None, error)
        if asked.reply:
            self.put(reply)

    def _told(self, question: str, given: tuple[Any, ...]) -> Any:
        engine = self._hosting.engine
        if question != "cancel":
            return engine.ask(question, *given)
        # A job that has ended is one that the engine does not know.
        (number,) = given
        sink = self.jobs.get(number)
        return sink is not None and engine.cancel(sink)
