"""The asker's end of an engine in another process, which is started again when it dies."""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from relquery.backends.local.batches import Sink
from relquery.backends.remote.process import (
    Ask,
    Command,
    EngineProcess,
    Replied,
    Stop,
    Submit,
    Told,
)
from relquery.backends.service.client import CLOSED, TICK, Facts, Packed, Submission, heard
from relquery.engine.executor import Clock, RealClock
from relquery.errors import ConfigError, EngineEndedError
from relquery.prompt import Answer, Finish

_LOG = logging.getLogger(__name__)
T = TypeVar("T")
TOGETHER = 0.002  # seconds for which commands are collected if they come close together
STOPPING = 10.0  # seconds that the process has for its last step when it is told to stop
LONGEST_PAUSE = 60.0  # seconds before a process that cannot load its model is started again


class Bell(Protocol):
    """Where a reply goes; a thread of the link puts it in, and must not be held up."""

    def put(self, reply: Replied, /) -> object:
        """The reply has come."""


@dataclass(slots=True)
class Tally:
    """What an engine has answered so far. prompt, cached, output: sums of tokens; see Answer."""

    answers: int = 0
    prompt: int = 0
    cached: int = 0
    output: int = 0

    def add(self, answer: Answer) -> None:
        """Count one more; of a cancelled one the tokens that it took."""
        self.answers += answer.finish is not Finish.CANCELLED
        self.prompt += answer.prompt_tokens
        self.cached += answer.cached_tokens
        self.output += answer.output_tokens


class _Open:
    """Who waits for what was asked, by number: sinks of jobs, and bells. Any thread may use it.

    tally: what jobs were answered.
    """

    def __init__(self) -> None:
        self.tally = Tally()
        self.jobs: dict[Sink, int] = {}
        self._numbers = count(1)
        self._waiting: dict[int, Any] = {}
        self._lock = threading.Lock()

    def begin(self, sink: Sink) -> int:
        """A number for a new job."""
        with self._lock:
            self.jobs[sink] = number = next(self._numbers)
            self._waiting[number] = sink
        return number

    def expect(self, bell: Bell) -> int:
        """A number for a new question. bell: gets the reply."""
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = bell
        return number

    def end(self, number: int | None) -> Any:
        """Who waited; nothing more comes. None if that is known."""
        with self._lock:
            found = None if number is None else self._waiting.pop(number, None)
            if found is not None:
                self.jobs.pop(found, None)
        return found

    def wants(self, command: Command) -> bool:
        """Whether a command's job or question has not ended with the process it was meant for."""
        return isinstance(command, Stop) or not command[0] or command[0] in self._waiting

    def hand_out(self, events: Sequence[Told]) -> None:
        """Tell the sinks what has come of their jobs."""
        for number, method, given in events:
            if method == "add":
                self.tally.add(given[1])
            sink = self.end(number) if method == "end" else self._waiting.get(number)
            if sink is not None:
                getattr(sink, method)(*given)

    def reply(self, reply: Replied) -> None:
        """Hand out a reply."""
        bell = self._waiting.get(reply.reply)
        if bell is not None:
            bell.put(reply)

    def endings(self, error: BaseException) -> list[Told]:
        """Events that end all jobs that are open now."""
        with self._lock:
            return [_ended(number, error) for number in self.jobs.values()]

    def refuse_questions(self, error: BaseException) -> None:
        """Answer all questions with an error."""
        with self._lock:
            numbers = self._waiting.keys() - self.jobs.values()
        for number in numbers:
            self.reply(Replied(number, None, error))


def _cancel(number: int) -> Ask:
    return Ask(0, "cancel", (number,))


def _ended(number: int, error: BaseException) -> Told:
    return Told(number, "end", (None, error))


class Link:
    """An engine in a process of its own. See Serving; any thread may use it.

    When the process dies, what it was asked ends with EngineEndedError, and another one is started.

    facts: of the model. starts: how often the process was started. ready: whether it has its model.
    """

    def __init__(
        self,
        model: str,
        options: Mapping[str, Any],
        *,
        hop: Callable[[Callable[[], None]], object] | None = None,
        prepare: Callable[[], None] | None = None,
        process: EngineProcess | None = None,
    ) -> None:
        """Start the process and wait until it has the model. Raises what loading it raises.

        prepare: see EngineProcess. process: the first one, if it runs already.
        hop: has an event loop call a function. Sinks then hear of events there; otherwise on a
        thread of the link.
        """
        self.clock: Clock = RealClock()
        self.closed = False
        self.hop = hop
        self._open = _Open()
        self._up = threading.Event()
        self._outgoing: SimpleQueue[Command | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._start = partial(EngineProcess, model, dict(options), prepare)
        self._process, self.starts = process or self._start(), 1
        self.facts: Facts = self._process.await_ready()
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
        return self._process.pid

    @property
    def open(self) -> int:
        """Jobs that have not ended."""
        return len(self._open.jobs)

    @property
    def tally(self) -> Tally:
        """What was answered, over all processes."""
        return self._open.tally

    def submit(self, submission: Submission, sink: Sink) -> bool:
        whole = submission
        if not isinstance(submission.prompts, Packed):
            # Prompts that are built when they are read cannot be sent.
            whole = replace(submission, prompts=list(submission.prompts))
        with self._lock:
            if not self.closed:
                self._outgoing.put(Submit(self._open.begin(sink), whole))
            return not self.closed

    def cancel(self, sink: Sink) -> bool:
        number = self._open.jobs.get(sink)
        return number is not None and bool(self._wait(False, "cancel", number))

    def drop(self, sink: Sink) -> None:
        """Cancel a job of which nobody wants to hear any more. Does not wait."""
        number = self._open.jobs.get(sink)
        if number is not None and self._open.end(number) is not None:
            self._outgoing.put(_cancel(number))

    def forecast(self, sink: Sink) -> float | None:
        number = self._open.jobs.get(sink)
        if number is None:
            return 0.0
        found: float | None = self._wait(0.0, "forecast", number)
        return found

    def ask(self, question: str, *given: Any) -> Any:
        closed = object()
        found = self._wait(closed, question, *given)
        if found is closed:
            raise ConfigError(CLOSED)
        return found

    def hear(self, bell: SimpleQueue[T], until: float | None) -> T:
        return heard(bell, until, self.clock, self._reader.is_alive)

    def post(self, bell: Bell, question: str, *given: Any) -> int | None:
        """Like `ask`, but returns at once: a number for `forget`, or None if the engine is closed.

        The reply goes to the bell.
        """
        with self._lock:
            if self.closed:
                return None
            number = self._open.expect(bell)
            self._outgoing.put(Ask(number, question, given))
        return number

    def forget(self, number: int) -> None:
        """Nobody waits for a reply any more."""
        self._open.end(number)

    def abandon(self, error: BaseException) -> None:
        """End all jobs with an error; those that come later are served."""
        endings = self._open.endings(error)
        for each in endings:
            self._outgoing.put(_cancel(each.number))
        self._pass_on(endings)

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
        self._process.kill()
        self._reader.join()
        self._up.set()
        self._outgoing.put(None)
        self._writer.join()
        self._process.join()
        self._process.close()

    def _wait(self, otherwise: T, question: str, *given: Any) -> Any | T:
        bell: SimpleQueue[Replied] = SimpleQueue()
        number = self.post(bell, question, *given)
        if number is None:
            return otherwise
        try:
            told = self.hear(bell, None)
        finally:
            self._open.end(number)
        if told.error is not None:
            raise told.error
        return told.value

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
            with suppress(OSError):  # the process has died: the reader sees to what was asked
                self._send(
                    [each for each in commands if each is not None and self._open.wants(each)]
                )

    def _send(self, commands: Sequence[Command]) -> None:
        """Send commands; one that cannot be pickled is refused alone. Raises OSError."""
        try:
            self._process.send(commands)
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
            case Submit(number):
                self._pass_on([_ended(number, error)])
            case Ask(reply):
                self._open.reply(Replied(reply, None, error))

    def _read(self) -> None:
        """Hand out events; start the process again when it dies, until the link is closed."""
        failures = 0
        while True:
            had_model = self._up.is_set()
            self._hand_out_all()
            self._up.clear()  # from here on commands are for the next process
            error = self._end_all(self._process.join())
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
                events = self._process.receive()
            except (EOFError, OSError):
                return
            for each in events:
                if isinstance(each, Replied):
                    self._open.reply(each)
            if told := [each for each in events if isinstance(each, Told)]:
                self._pass_on(told)

    def _pass_on(self, events: Sequence[Told]) -> None:
        if self.hop is None:
            self._open.hand_out(events)
        else:
            with suppress(RuntimeError):  # the event loop is closed, so nobody listens
                self.hop(lambda: self._open.hand_out(events))

    def _end_all(self, how: str) -> EngineEndedError:
        """End what the process was asked. how: it ended."""
        error = EngineEndedError(
            "The engine was stopped before the answer was whole."
            if self.closed
            else f"The engine's process ended{how}. Ask again."
        )
        self._pass_on(self._open.endings(error))
        self._open.refuse_questions(error)
        return error

    def _restart(self) -> None:
        old = self._process
        self._process = self._start()
        self.starts += 1
        old.close()
        try:
            self._process.await_ready()
        except Exception as error:
            _LOG.error("the engine cannot be started again: %s", error)
        else:
            self._up.set()
