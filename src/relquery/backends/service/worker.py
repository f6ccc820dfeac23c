"""The thread of an engine that serves many: it alone tokenises and runs the engine's loop.

Others leave commands in its inbox, which it takes in between steps, and get answers in their sinks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import RLock, Thread, current_thread
from traceback import clear_frames
from typing import Any, TypeVar

from relquery.backends.local.batches import Sink
from relquery.backends.local.embedded import EmbeddedBackend
from relquery.backends.service.client import CLOSED, Facts, Submission, heard
from relquery.backends.service.state import state_of
from relquery.errors import ConfigError
from relquery.prompt import Prompt, Sampling

T = TypeVar("T")
_LONGEST = 0.1  # seconds in which commands are taken before the next step


def _facts(backend: EmbeddedBackend) -> Facts:
    limits, config = backend.limits, backend.config
    context, block = limits.context or 0, limits.block_tokens or 0
    calls = backend.call_form
    return Facts(backend.name, context, config.cache_tokens, block, config.policy, calls)


def _tokens(backend: EmbeddedBackend, prompt: Prompt) -> list[int]:
    """Token ids of a prompt as the model reads it."""
    return [int(token) for run in backend.runs(prompt) for token in run]


def _length(backend: EmbeddedBackend, prompt: Prompt) -> int:
    """Tokens of a prompt's own text, however many they are."""
    return sum(map(len, backend.runs(prompt)))


def _count(backend: EmbeddedBackend, prompts: Sequence[Prompt]) -> list[int]:
    """Tokens of each prompt; 0 for one that cannot be served."""
    return backend.prompt_tokens(prompts, Sampling(max_tokens=1))


QUESTIONS: dict[str, Callable[..., Any]] = {
    "facts": _facts,
    "state": state_of,
    "tokens": _tokens,
    "count": _count,
    "length": _length,
    "known_as": EmbeddedBackend.known_as,
    "check": EmbeddedBackend.check,
    "one_pass": EmbeddedBackend.one_pass,
    "prompt_tokens": EmbeddedBackend.prompt_tokens,
    "predict": EmbeddedBackend.predict,
    "runs": EmbeddedBackend.runs,
    "share": EmbeddedBackend.share,
    "inspect": EmbeddedBackend.inspect,
    "token_bytes": EmbeddedBackend.token_bytes,
    "spell": EmbeddedBackend.spell,
}
"""What may be asked of a backend between two steps."""


def nothing() -> None:
    """Does nothing."""


class Worker:
    """Serves jobs with a backend until it is told to stop; then closes the backend. See Serving.

    clock: the engine's. closed: whether it takes no commands any more. turned: called on the thread
    after each turn, when sinks have what the step gave.
    """

    def __init__(self, backend: EmbeddedBackend, turned: Callable[[], None] = nothing) -> None:
        self.clock, self.closed = backend.engine.clock, False
        self._backend, self._batches, self._turned = backend, backend.batches, turned
        self._inbox: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._stopping = False
        # A signal's handler may close an engine in the midst of a call that its thread makes.
        self._lock = RLock()
        self._thread = Thread(target=self._run, name="relquery-engine", daemon=True)
        self._thread.start()

    @property
    def count(self) -> int:
        """Jobs that are open."""
        return len(self._batches.jobs)

    def post(self, command: Callable[[], object]) -> bool:
        """Have the thread run a command before its next step; False if it takes none any more."""
        with self._lock:
            if not self.closed:
                self._inbox.put(command)
            return not self.closed

    def submit(self, submission: Submission, sink: Sink) -> bool:
        arrival = self.clock.now()
        return self.post(lambda: self._begin(submission, sink, arrival))

    def cancel(self, sink: Sink) -> bool:
        return self.call(lambda: self.end(sink), False)

    def forecast(self, sink: Sink) -> float | None:
        over: float | None = 0.0
        return self.call(lambda: self.foresee(sink), over)

    def ask(self, question: str, *given: Any) -> Any:
        closed = object()
        found = self.call(lambda: self.told(question, given), closed)
        if found is closed:
            raise ConfigError(CLOSED)
        return found

    def call(self, question: Callable[[], T], otherwise: T) -> T:
        """What a function gives on the thread, or `otherwise` where it takes no commands.

        Raises what the function raises.
        """
        reply: SimpleQueue[tuple[T, BaseException | None]] = SimpleQueue()

        def command() -> None:
            try:
                reply.put((question(), None))
            except BaseException as error:
                reply.put((otherwise, error))

        if not self.post(command):
            return otherwise
        value, error = self.hear(reply, None)
        if error is not None:
            raise error
        return value

    def hear(self, bell: SimpleQueue[T], until: float | None) -> T:
        return heard(bell, until, self.clock, self._thread.is_alive)

    def stop(self) -> None:
        """Have the thread cancel what is open and end. Waits for the step that runs."""
        with self._lock:
            self.closed = True
            self._inbox.put(self._quit)
        # The last reference to an engine may be dropped on its own thread.
        if current_thread() is not self._thread:
            self._thread.join()

    # What follows runs on the thread.

    def end(self, sink: Sink) -> bool:
        """End what is open of a job; False if nothing is."""
        batch = self._batches.jobs.get(sink)
        if batch is None:
            return False
        self._batches.cancel(batch)
        return True

    def told(self, question: str, given: Sequence[Any]) -> Any:
        """What the backend tells; see Serving.ask."""
        return QUESTIONS[question](self._backend, *given)

    def _begin(self, asked: Submission, sink: Sink, arrival: float) -> None:
        """Queue a job's prompts. What breaks on the way breaks this job alone."""
        try:
            self._backend.submit(
                asked.prompts,
                asked.sampling,
                asked.tenant,
                arrival,
                asked.scored,
                asked.streamed,
                asked.declared,
                asked.adapter,
                sink,
            )
        except BaseException as error:
            sink.end(None, error)

    def foresee(self, sink: Sink) -> float | None:
        """Seconds until the last answer of a job's relQuery; 0 if the job is not open. See
        Loop.forecast."""
        batch = self._batches.jobs.get(sink)
        if batch is None or batch.relquery is None:
            return 0.0
        return self._backend.engine.forecast(batch.relquery.id)

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._turn()
            except BaseException as error:
                self._fail(error)
        self._backend.close()  # which cancels what is open
        self._turned()

    def _turn(self) -> None:
        """Take in commands, waiting for them if no job is open; then run a step."""
        while not self._batches.jobs and not self._stopping:
            self._inbox.get()()
            self._turned()
        # Those that are there, and no more: who asks again and again would hold up the steps. So
        # would many that take long, such as schemas that are new.
        until = self.clock.now() + _LONGEST
        for _ in range(self._inbox.qsize()):
            self._inbox.get()()
            if self.clock.now() > until:
                break
        if self._batches.jobs and not self._stopping:
            self._batches.step()
        self._turned()

    def _quit(self) -> None:
        self._stopping = True

    def _fail(self, error: BaseException) -> None:
        """End all open jobs with an error; those that come later are served."""
        # The error lives as long as a job that somebody keeps; what its frames hold, all that the
        # step had in memory, would live as long.
        clear_frames(error.__traceback__)
        try:
            self._batches.fail(error)
        finally:
            self._turned()
