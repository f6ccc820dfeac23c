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

from relquery.backends.local.host import CLOSED, TICK, Facts, Packed, Sink, Submission, heard
from relquery.backends.remote.process import (
    Ask,
    Command,
    EngineProcess,
    Replied,
    Stop,
    Submit,
    Told,
)
from relquery.engine.executor import Clock, RealClock
from relquery.errors import ConfigError, EngineEndedError
from relquery.prompt import Answer, Finish

_LOG = logging.getLogger(__name__)
T = TypeVar("T")
TOGETHER = 0.002  # seconds for which commands are collected if they come close together
STOPPING = 10.0  # seconds that the process has for its last step when it is told to stop
LONGEST_PAUSE = 60.0  # seconds before a process that cannot load its model is started again


class Bell(Protocol):
    """The receiver of a reply; a thread of the link puts it in, and must not be held up."""

    def put(self, reply: Replied, /) -> object:
        """The reply has come."""


@dataclass(slots=True)
class AnswerTotals:
    """Sums over the answers of an engine so far. prompt, cached, output: sums of tokens; see
    Answer."""

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


class Link:
    """An engine in a process of its own. See EngineHost; any thread may use it.

    When the process dies, what it was asked ends with EngineEndedError, and another one is started.

    facts: of the model. starts: how often the process was started. tally: what was answered, over
    all processes. hop: has an event loop call a function. Sinks then hear of events there;
    otherwise on a thread of the link.
    """

    def __init__(
        self,
        model: str,
        options: Mapping[str, Any],
        *,
        prepare: Callable[[], None] | None = None,
        process: EngineProcess | None = None,
    ) -> None:
        """Start the process and wait until it has the model. Raises what loading it raises.

        prepare: see EngineProcess. process: the first one, if it runs already.
        """
        self.clock: Clock = RealClock()
        self.closed = False
        self.hop: Callable[[Callable[[], None]], object] | None = None
        self.tally = AnswerTotals()
        self._jobs: dict[Sink, int] = {}
        self._waiting: dict[int, Any] = {}  # sinks of jobs, and bells of questions, by number
        self._numbers = count(1)
        self._lock = threading.RLock()
        self._up = threading.Event()
        self._outgoing: SimpleQueue[Command | None] = SimpleQueue()
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
        return len(self._jobs)

    def submit(self, submission: Submission, sink: Sink) -> bool:
        whole = submission
        if not isinstance(submission.prompts, Packed):
            # Prompts that are built when they are read cannot be sent.
            whole = replace(submission, prompts=list(submission.prompts))
        with self._lock:
            if not self.closed:
                number = self._jobs[sink] = self._expect(sink)
                self._outgoing.put(Submit(number, whole))
            return not self.closed

    def cancel(self, sink: Sink) -> bool:
        number = self._jobs.get(sink)
        return number is not None and bool(self._asked(False, "cancel", number))

    def drop(self, sink: Sink) -> None:
        """Cancel a job of which nobody wants to hear any more. Does not wait."""
        number = self._jobs.get(sink)
        if number is not None and self.forget(number) is not None:
            self._outgoing.put(_cancel(number))

    def ask(self, question: str, *given: Any) -> Any:
        closed = object()
        reply = self._asked(closed, question, *given)
        if reply is closed:
            raise ConfigError(CLOSED)
        return reply

    def hear(self, bell: SimpleQueue[T], until: float | None) -> T:
        return heard(bell, until, self.clock, self._reader.is_alive)

    def post(self, bell: Bell, question: str, *given: Any) -> int | None:
        """Like `ask`, but returns at once: a number for `forget`, or None if the engine is closed.

        The reply goes to the bell.
        """
        with self._lock:
            if self.closed:
                return None
            number = self._expect(bell)
            self._outgoing.put(Ask(number, question, given))
        return number

    def forget(self, number: int) -> Any:
        """Nothing more comes under a number; gives who waited, or None if that is known."""
        with self._lock:
            waiter = self._waiting.pop(number, None)
            if waiter is not None:
                self._jobs.pop(waiter, None)
        return waiter

    def abandon(self, error: BaseException) -> None:
        """End all jobs with an error; those that come later are served."""
        endings = self._endings(error)
        for each in endings:
            self._outgoing.put(_cancel(each.number))
        self._pass_on(endings)

    def stop(self, patience: float = STOPPING) -> None:
        """End the process, which cancels what is open; it is killed if it does not end by itself.

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

    def _expect(self, waiting: Any) -> int:
        """A number for a job or a question. waiting: a sink, or a bell."""
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = waiting
        return number

    def _asked(self, otherwise: T, question: str, *given: Any) -> Any | T:
        bell: SimpleQueue[Replied] = SimpleQueue()
        number = self.post(bell, question, *given)
        if number is None:
            return otherwise
        try:
            told = self.hear(bell, None)
        finally:
            self.forget(number)
        if told.error is not None:
            raise told.error
        return told.value

    def _endings(self, error: BaseException) -> list[Told]:
        """Events that end all jobs that are open now."""
        with self._lock:
            return [_ended(number, error) for number in self._jobs.values()]

    # What follows runs on the threads of the link.

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
                self._send([each for each in commands if each is not None and self._wants(each)])

    def _wants(self, command: Command) -> bool:
        """Whether a command's job or question has not ended with the process it was meant for."""
        return isinstance(command, Stop) or not command[0] or command[0] in self._waiting

    def _send(self, commands: Sequence[Command]) -> None:
        """Send commands; one that cannot be pickled is refused alone. Raises OSError."""
        try:
            self._process.send(commands)
        except OSError:
            raise
        except Exception as error:
            if len(commands) > 1:
                for command in commands:
                    self._send([command])
                return
            match commands[0]:
                case Submit(number):
                    self._pass_on([_ended(number, error)])
                case Ask(reply):
                    self._reply(Replied(reply, None, error))

    def _read(self) -> None:
        """Hand out events; start the process again when it dies, until the link is closed."""
        failures = 0
        while True:
            had_model = self._up.is_set()
            with suppress(EOFError, OSError):
                while True:
                    self._hand_out(self._process.receive())
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

    def _hand_out(self, events: Sequence[Any]) -> None:
        for each in events:
            if isinstance(each, Replied):
                self._reply(each)
        if told := [each for each in events if isinstance(each, Told)]:
            self._pass_on(told)

    def _reply(self, reply: Replied) -> None:
        bell = self._waiting.get(reply.reply)
        if bell is not None:
            bell.put(reply)

    def _pass_on(self, events: Sequence[Told]) -> None:
        if self.hop is None:
            self._tell(events)
        else:
            with suppress(RuntimeError):  # the event loop is closed, so nobody listens
                self.hop(lambda: self._tell(events))

    def _tell(self, events: Sequence[Told]) -> None:
        """Tell the sinks what has come of their jobs."""
        for number, method, given in events:
            if method == "add":
                self.tally.add(given[1])
            sink = self.forget(number) if method == "end" else self._waiting.get(number)
            if sink is not None:
                getattr(sink, method)(*given)

    def _end_all(self, how: str) -> EngineEndedError:
        """End what the process was asked. how: it ended."""
        error = EngineEndedError(
            "The engine was stopped before the answer was whole."
            if self.closed
            else f"The engine's process ended{how}. Ask again."
        )
        self._pass_on(self._endings(error))
        with self._lock:
            questions = self._waiting.keys() - self._jobs.values()
        for number in questions:
            self._reply(Replied(number, None, error))
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


def _cancel(number: int) -> Ask:
    return Ask(0, "cancel", (number,))


def _ended(number: int, error: BaseException) -> Told:
    return Told(number, "end", (None, error))
