"""The asker's end of an engine in another process, which is started again when it dies."""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from relquery.backends.remote.host import host
from relquery.backends.remote.messages import (
    Answered,
    Ask,
    Cancel,
    Command,
    Ended,
    Event,
    Forecast,
    Pieced,
    Ready,
    Replied,
    Stop,
    Submit,
    receive,
    send,
)
from relquery.backends.remote.tally import Tally
from relquery.backends.service.delivery import TICK, Sink, heard
from relquery.backends.service.serving import Facts, Submission
from relquery.engine.clock import Clock, RealClock
from relquery.errors import ConfigError, EngineEndedError, ModelError

_LOG = logging.getLogger(__name__)
T = TypeVar("T")
TOGETHER = 0.002  # seconds for which commands are collected if they come close together
STOPPING = 10.0  # seconds that the process has for its last step when it is told to stop
LONGEST_PAUSE = 60.0  # seconds before a process that cannot load its model is started again


class Bell(Protocol):
    """Where a reply goes; a thread of the link puts it in, and must not be held up."""

    def put(self, reply: Replied, /) -> object:
        """The reply has come."""


class Link:
    """An engine in a process of its own. See Serving; any thread may use it.

    When the process dies, what it was asked ends with EngineEndedError, and another one is started.

    facts: of the model. starts: how often the process was started. ready: whether it has its model.
    tally: what it has answered, over all its processes.
    """

    def __init__(
        self,
        model: str,
        options: Mapping[str, Any],
        *,
        hop: Callable[[Callable[[], None]], object] | None = None,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        """Start the process and wait until it has the model. Raises what loading it raises.

        prepare: called in the process first, e.g. to set up its log; can be pickled.
        hop: has an event loop call a function. Sinks then hear of events there; otherwise on a
        thread of the link.
        """
        self.clock: Clock = RealClock()
        self.closed = False
        self.starts = 0
        self.tally = Tally()
        self.hop = hop
        self._up = threading.Event()
        self._model, self._options, self._prepare = model, dict(options), prepare
        self._numbers = count(1)
        self._jobs: dict[int, Sink] = {}
        self._number_of: dict[Sink, int] = {}
        self._replies: dict[int, Bell] = {}
        self._outgoing: SimpleQueue[Command | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._context = multiprocessing.get_context("spawn")
        self._process, self._pipe = self._start()
        self.facts: Facts = self._await_ready(self._pipe)
        self._up.set()
        self._writer = threading.Thread(target=self._write, name="relquery-link-out", daemon=True)
        self._reader = threading.Thread(target=self._read, name="relquery-link-in", daemon=True)
        self._writer.start()
        self._reader.start()
        # Before multiprocessing's own handler, which waits for a process that ignores SIGTERM.
        atexit.register(self.stop)

    @property
    def ready(self) -> bool:
        """Whether the process has its model."""
        return self._up.is_set()

    @property
    def pid(self) -> int | None:
        """The process's number in the operating system."""
        number: int | None = self._process.pid
        return number

    @property
    def open(self) -> int:
        """Jobs that have not ended."""
        return len(self._jobs)

    def submit(self, submission: Submission, sink: Sink) -> bool:
        """See Serving."""
        # Prompts that are built when they are read cannot be sent.
        whole = replace(submission, prompts=list(submission.prompts))
        with self._lock:
            if self.closed:
                return False
            number = next(self._numbers)
            self._jobs[number], self._number_of[sink] = sink, number
            self._outgoing.put(Submit(number, whole))
        return True

    def cancel(self, sink: Sink) -> bool:
        """See Serving."""
        number = self._number_of.get(sink)
        return number is not None and bool(self._wait(lambda reply: Cancel(number, reply), False))

    def drop(self, sink: Sink) -> None:
        """Cancel a job of which nobody wants to hear any more. Does not wait."""
        with self._lock:
            number = self._number_of.pop(sink, None)
            if number is not None:
                del self._jobs[number]
                self._outgoing.put(Cancel(number))

    def forecast(self, sink: Sink) -> float | None:
        """See Serving."""
        number = self._number_of.get(sink)
        if number is None:
            return 0.0
        found: float | None = self._wait(lambda reply: Forecast(number, reply), 0.0)
        return found

    def ask(self, question: str, *given: Any) -> Any:
        """See Serving."""
        closed = object()
        found = self._wait(lambda reply: Ask(reply, question, given), closed)
        if found is closed:
            raise ConfigError("The engine is closed. Open another one.")
        return found

    def hear(self, bell: SimpleQueue[T], until: float | None) -> T:
        """See Serving."""
        return heard(bell, until, self.clock, self._reader.is_alive)

    def post(self, bell: Bell, question: str, *given: Any) -> int | None:
        """Like `ask`, but returns at once: a number for `forget`, or None if the engine is closed.

        The reply goes to the bell.
        """
        return self._post(lambda reply: Ask(reply, question, given), bell)

    def forget(self, number: int) -> None:
        """Nobody waits for a reply any more."""
        self._replies.pop(number, None)

    def abandon(self, error: BaseException) -> None:
        """End all jobs with an error; those that come later are served."""
        with self._lock:
            numbers = list(self._jobs)
            for number in numbers:
                self._outgoing.put(Cancel(number))
        self._pass_on([Ended(number, None, error) for number in numbers])

    def stop(self, patience: float = STOPPING) -> None:
        """See Serving. A process that does not end is killed.

        patience: seconds that it has for the step that runs.
        """
        atexit.unregister(self.stop)
        with self._lock:
            if self.closed:
                return
            self.closed = True
            self._outgoing.put(Stop())
        self._reader.join(patience)
        if self._process.is_alive():
            self._process.kill()
        self._reader.join()
        self._up.set()
        self._outgoing.put(None)
        self._writer.join()
        self._process.join()
        self._pipe.close()

    def _wait(self, command: Callable[[int], Command], otherwise: T) -> Any | T:
        bell: SimpleQueue[Replied] = SimpleQueue()
        reply = self._post(command, bell)
        if reply is None:
            return otherwise
        try:
            told = self.hear(bell, None)
        finally:
            self._replies.pop(reply, None)
        if told.error is not None:
            raise told.error
        return told.value

    def _post(self, command: Callable[[int], Command], bell: Bell) -> int | None:
        with self._lock:
            if self.closed:
                return None
            reply = next(self._numbers)
            self._replies[reply] = bell
            self._outgoing.put(command(reply))
        return reply

    def _start(self) -> tuple[Any, Connection]:
        self.starts += 1
        ours, theirs = self._context.Pipe()
        prepare = self._prepare or partial(
            logging.basicConfig, level=logging.getLogger().getEffectiveLevel()
        )
        process = self._context.Process(
            target=host,
            args=(theirs, self._model, self._options, prepare),
            name="relquery-engine",
            daemon=True,
        )
        process.start()
        theirs.close()  # so that the pipe ends when the process does
        return process, ours

    def _await_ready(self, pipe: Connection) -> Facts:
        """Wait for a new process. Raises what kept it from loading the model."""
        try:
            (event,) = receive(pipe)
        except KeyboardInterrupt:
            self._process.kill()  # it would load the model to the end
            raise
        except (EOFError, OSError):
            self._process.join()
            raise ModelError(
                "The engine's process ended while it loaded the model"
                f"{_why(self._process.exitcode)}."
            ) from None
        if event.error is not None:
            self._process.join()
            raise event.error
        facts: Facts = event.value
        return facts

    def _write(self) -> None:
        """Send commands, all that are there at once.

        Under load they are collected for a moment: each wake-up of this thread takes the
        interpreter from the one that reads requests.
        """
        latest = 0.0
        while True:
            commands = [self._outgoing.get()]
            if time.monotonic() - latest < TOGETHER:
                time.sleep(TOGETHER)
            latest = time.monotonic()
            while not self._outgoing.empty():
                commands.append(self._outgoing.get())
            if None in commands:
                return
            self._up.wait()
            sent = [each for each in commands if each is not None and self._is_wanted(each)]
            try:
                self._send(sent)
            except OSError:
                continue  # the process has died: the reader sees to what was asked

    def _send(self, commands: Sequence[Command]) -> None:
        """Send commands; one that cannot be pickled is refused alone. Raises OSError."""
        try:
            send(self._pipe, commands)
            return
        except OSError:
            raise
        except Exception as error:
            if len(commands) == 1:
                self._refuse(commands[0], error)
                return
        for command in commands:
            self._send([command])

    def _refuse(self, command: Command, error: Exception) -> None:
        match command:
            case Submit(number, _):
                self._pass_on([Ended(number, None, error)])
            case Ask(reply, _, _):
                bell = self._replies.get(reply)
                if bell is not None:
                    bell.put(Replied(reply, None, error))

    def _is_wanted(self, command: Command) -> bool:
        """Whether a job or a question has not ended with the process that it was meant for."""
        match command:
            case Submit(number, _):
                return number in self._jobs
            case Ask(reply, _, _):
                return reply in self._replies
        return True

    def _read(self) -> None:
        """Hand out events; start the process again when it dies, until the link is closed."""
        failures = 0
        while True:
            had_model = self._up.is_set()
            self._hand_out_all()
            self._up.clear()  # from here on commands are for the next process
            self._process.join()
            error = self._end_all()
            failures = 0 if had_model else failures + 1
            self._pause(min(LONGEST_PAUSE, 2.0**failures) if failures else 0.0)
            if self.closed:
                return
            _LOG.error("%s Starting it again.", error)
            self._restart()

    def _pause(self, seconds: float) -> None:
        """Wait before another try, unless the link is closed meanwhile."""
        end = time.monotonic() + seconds
        while not self.closed and time.monotonic() < end:
            time.sleep(TICK)

    def _hand_out_all(self) -> None:
        while True:
            try:
                events = receive(self._pipe)
            except (EOFError, OSError):
                return
            told = [each for each in events if not isinstance(each, Replied | Ready)]
            for each in events:
                if isinstance(each, Replied):
                    bell = self._replies.get(each.reply)
                    if bell is not None:
                        bell.put(each)
            if told:
                self._pass_on(told)

    def _pass_on(self, events: Sequence[Event]) -> None:
        if self.hop is None:
            self._hand_out(events)
        else:
            with suppress(RuntimeError):  # the event loop is closed, so nobody listens
                self.hop(lambda: self._hand_out(events))

    def _hand_out(self, events: Sequence[Event]) -> None:
        for event in events:
            match event:
                case Pieced(number, index, piece):
                    if (sink := self._jobs.get(number)) is not None:
                        sink.piece(index, piece)
                case Answered(number, index, answer):
                    self.tally.add(answer)
                    if (sink := self._jobs.get(number)) is not None:
                        sink.add(index, answer)
                case Ended(number, latency, error):
                    if (sink := self._forget(number)) is not None:
                        sink.end(latency, error)

    def _forget(self, number: int) -> Sink | None:
        with self._lock:
            sink = self._jobs.pop(number, None)
            if sink is not None:
                self._number_of.pop(sink, None)
        return sink

    def _end_all(self) -> EngineEndedError:
        """End what the process was asked."""
        error = EngineEndedError(
            "The engine is closed."
            if self.closed
            else f"The engine's process ended{_why(self._process.exitcode)}. Ask again."
        )
        with self._lock:
            numbers, replies = list(self._jobs), list(self._replies.items())
        self._pass_on([Ended(number, None, error) for number in numbers])
        for reply, bell in replies:
            bell.put(Replied(reply, None, error))
        return error

    def _restart(self) -> None:
        old = self._pipe
        self._process, pipe = self._start()
        self._pipe = pipe
        old.close()
        try:
            self._await_ready(pipe)
        except Exception as error:
            _LOG.error("the engine cannot be started again: %s", error)
        else:
            self._up.set()


def _why(code: int | None) -> str:
    if code is None or code == 0:
        return ""
    return f" with signal {-code}" if code < 0 else f" with exit code {code}"
