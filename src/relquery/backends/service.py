"""The embedded engine as a service: jobs from any thread, served together on a thread of its own.

That thread alone tokenises and runs the engine's loop. Others leave commands in its inbox, which
it takes in between steps, and read what it has put into their jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock, Thread, current_thread
from traceback import clear_frames
from types import TracebackType
from typing import Any, Self, TypeVar
from weakref import finalize

from relquery.backends.embedded import Batch, EmbeddedBackend, load_backend
from relquery.config import PolicyName
from relquery.engine.cost import LinearCost
from relquery.engine.relquery import Latency
from relquery.errors import ConfigError
from relquery.prompt import Answer, Prompt, Sampling, Span

T = TypeVar("T")
TICK = 0.25  # seconds that a wait lasts at most: on Windows Ctrl-C is heard only between waits
EXIT_WAIT = 5.0  # seconds that the end of the program waits for the step that runs


class Engine:
    """Serves relQueries as they come, from any thread; a policy says which goes first.

    model: "demo", a Hugging Face name or folder, or "random:layers=8,hidden=256".
    policy, starvation, aging, weights: see EngineConfig. cost: see EmbeddedBackend.
    options: other fields of EngineConfig, and dtype, device, tokenizer.

    A context manager. Raises ConfigError, ModelError and MissingExtraError.
    """

    def __init__(
        self,
        model: str,
        *,
        policy: PolicyName = "shortest",
        starvation: float | None = None,
        aging: float = 0.0,
        weights: Mapping[str, float] | None = None,
        cost: LinearCost | str | Path | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(model, str) or model.startswith("openai:"):
            raise ConfigError(
                f"model is {model!r}. An engine runs a model on this machine: give its name or "
                "folder, e.g. 'demo'. For a provider's model use relquery.connect."
            )
        backend = load_backend(
            model,
            policy=policy,
            starvation=starvation,
            aging=aging,
            weights=dict(weights or {}),
            cost=cost,
            **options,
        )
        self.name, self.policy, self.cost = backend.name, policy, backend.cost
        self._model = model
        self._worker = _Worker(backend)
        # Also where nobody closes it: when it is dropped, and at the end of the program.
        finalize(self, self._worker.stop, EXIT_WAIT)

    def submit(
        self,
        prompts: Iterable[str | Prompt],
        *,
        max_tokens: int = 256,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        seed: int | None = None,
        stop: Sequence[str] = (),
        choices: Sequence[str] = (),
        tenant: str = "",
    ) -> Job:
        """Ask all prompts as one relQuery. Returns at once; the job gives the answers.

        prompts: texts, each a user's message, or tuples of Spans. choices: where not empty, each
        answer is one of them. tenant: who asks, see `weights`. For the rest see Sampling.

        Raises ConfigError for what cannot be asked and where the engine is closed.
        """
        found = _prompts(prompts)
        if not isinstance(tenant, str):
            raise ConfigError(f"tenant is {tenant!r}; it must be a string.")
        sampling = Sampling(
            max_tokens,
            temperature,
            top_p,
            top_k,
            seed,
            _texts("stop", stop),
            _texts("choices", choices),
        )
        job = Job(self, len(found))
        arrival = self._worker.clock.now()
        if not self._worker.post(lambda: self._worker.begin(job, found, sampling, tenant, arrival)):
            raise ConfigError("The engine is closed. Open another one: relquery.Engine(model).")
        return job

    def close(self) -> None:
        """Cancel what is open and free the model; a second time does nothing.

        Waits for the step that runs.
        """
        self._worker.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._worker.closed else f"{self._worker.count} open jobs"
        return f"<Engine {self._model!r}, policy {self.policy!r}, {state}>"


class Job:
    """A relQuery that was submitted. Made by Engine.submit; any thread may use it.

    Iterating gives (index into prompts, answer) as answers come, and ends after the last; each
    iteration gives all of them. It waits where need be, and raises what broke the job.
    """

    def __init__(self, engine: Engine, size: int) -> None:
        # The engine lives as long as a job of its own that somebody waits for.
        self._engine, self._size = engine, size
        self._came: list[tuple[int, Answer]] = []
        self._batch: Batch | None = None
        self._error: BaseException | None = None
        self._latency: Latency | None = None
        self._over = size == 0
        self._bells: list[SimpleQueue[None]] = []

    def __iter__(self) -> Iterator[tuple[int, Answer]]:
        return self._follow(None)

    def result(self, timeout: float | None = None) -> list[Answer]:
        """All answers, in the order of the prompts.

        timeout: seconds to wait at most; None for as long as it takes. Raises TimeoutError after
        them, while the job goes on, and what broke the job.
        """
        now = self._engine._worker.clock.now
        answers = dict(self._follow(None if timeout is None else now() + timeout))
        return [answers[index] for index in range(self._size)]

    @property
    def done(self) -> bool:
        """Whether all answers have come, or what broke the job."""
        return self._over

    @property
    def latency(self) -> Latency | None:
        """Seconds from `submit` to the last answer; None until then, or if it was never begun."""
        return self._latency

    def cancel(self) -> bool:
        """End the prompts that have no answer yet; False if there are none.

        Their answers say so. Waits for the step that runs.
        """
        worker = self._engine._worker
        return not self._over and worker.ask(lambda: worker.cancel(self), False)

    def estimate(self) -> float | None:
        """Predicted seconds from now to the last answer: 0 once it is done; None if not known.

        Waits for the step that runs.
        """
        worker = self._engine._worker
        over: float | None = 0.0
        return over if self._over else worker.ask(lambda: worker.forecast(self), over)

    def __repr__(self) -> str:
        state = "failed" if self._error else f"{len(self._came)} of {self._size} answers"
        return f"<Job, {state}>"

    def _follow(self, until: float | None) -> Iterator[tuple[int, Answer]]:
        bell: SimpleQueue[None] = SimpleQueue()
        self._bells.append(bell)
        seen = 0
        try:
            while True:
                over = self._over  # read before the answers, none of which comes after it
                while seen < len(self._came):
                    yield self._came[seen]
                    seen += 1
                if over:
                    break
                self._wait(bell, until)
        finally:
            self._bells.remove(bell)
        if self._error is not None:
            raise self._error

    def _wait(self, bell: SimpleQueue[None], until: float | None) -> None:
        try:
            self._engine._worker.hear(bell, until)
        except TimeoutError:
            raise TimeoutError(
                f"{len(self._came)} of {self._size} answers have come in time. The job goes on: "
                "ask again, or cancel it."
            ) from None

    def _add(self, index: int, answer: Answer) -> None:
        self._came.append((index, answer))
        self._ring()

    def _end(self, latency: Latency | None, error: BaseException | None = None) -> None:
        self._latency, self._error, self._over = latency, error, True
        self._ring()

    def _ring(self) -> None:
        for bell in tuple(self._bells):
            bell.put(None)


class _Worker:
    """The engine's thread. It holds no reference to the Engine, except in jobs that are open.

    Nothing that other threads do holds a lock that this one needs for longer than to leave a
    command, so that an interrupt of theirs, wherever it comes, does not stop it.
    """

    def __init__(self, backend: EmbeddedBackend) -> None:
        self.clock, self.closed = backend.engine.clock, False
        self._backend = backend
        self._inbox: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._jobs: dict[Batch, Job] = {}
        self._stopping, self._lock = False, Lock()
        self._thread = Thread(target=self._run, name="relquery-engine", daemon=True)
        self._thread.start()

    @property
    def count(self) -> int:
        """Jobs that are open."""
        return len(self._jobs)

    def post(self, command: Callable[[], object]) -> bool:
        """Have the thread run a command before its next step; False if it takes none any more."""
        with self._lock:
            if not self.closed:
                self._inbox.put(command)
            return not self.closed

    def ask(self, question: Callable[[], T], otherwise: T) -> T:
        """What a function gives on the thread, or `otherwise` where it takes no commands."""
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
        """The next thing that the thread puts in. until: on the clock, then TimeoutError."""
        while True:
            alive = self._thread.is_alive()  # before the wait: afterwards it puts nothing in
            left = TICK if until is None else min(TICK, max(0.0, until - self.clock.now()))
            try:
                return bell.get(timeout=left)
            except Empty:
                if not alive:
                    raise ConfigError("The engine has stopped. Open another one.") from None
                if until is not None and self.clock.now() >= until:
                    raise TimeoutError from None

    def stop(self, wait: float | None = None) -> None:
        """Have the thread cancel what is open and end. wait: seconds that this lasts at most."""
        with self._lock:
            if not self.closed:
                self.closed = True
                self._inbox.put(self._quit)
        # The last reference to an engine may be dropped on its own thread.
        if current_thread() is not self._thread:
            self._thread.join(wait)

    # What follows runs on the thread.

    def begin(
        self, job: Job, prompts: Sequence[Prompt], sampling: Sampling, tenant: str, arrival: float
    ) -> None:
        """Queue a job's prompts. What breaks on the way breaks this job alone."""
        if job.done:  # it had no prompts
            return
        try:
            batch = self._backend.submit(prompts, sampling, tenant, arrival)
        except BaseException as error:
            clear_frames(error.__traceback__)
            job._end(None, error)
            return
        job._batch, self._jobs[batch] = batch, job
        self._deliver(batch)

    def cancel(self, job: Job) -> bool:
        """End what is open of a job; False if nothing is."""
        if job.done or job._batch is None:
            return False
        self._backend.cancel(job._batch)
        self._deliver(job._batch)
        return True

    def forecast(self, job: Job) -> float | None:
        """See Job.estimate."""
        if job.done or job._batch is None:
            return 0.0
        return self._backend.engine.forecast(job._batch.group)

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._turn()
            except BaseException as error:
                self._fail(error)
        for batch in list(self._jobs):
            self._backend.cancel(batch)
            self._deliver(batch)
        self._backend.close()

    def _turn(self) -> None:
        """Take in all commands, waiting for one if no job is open; then run a step."""
        while not self._stopping and (not self._jobs or not self._inbox.empty()):
            self._inbox.get()()
        if not self._stopping:
            for batch in self._backend.step():
                self._deliver(batch)

    def _quit(self) -> None:
        self._stopping = True

    def _deliver(self, batch: Batch) -> None:
        """Hand a batch's new answers to its job."""
        job = self._jobs[batch]
        while batch.ready:
            job._add(*batch.ready.popleft())
        if not batch.open:
            del self._jobs[batch]
            job._end(_latency(batch))

    def _fail(self, error: BaseException) -> None:
        """End all open jobs with an error; those that come later are served."""
        # A job may be kept for long, its error too, and with it all that the step had in memory.
        clear_frames(error.__traceback__)
        jobs, self._jobs = self._jobs, {}
        try:
            for batch in jobs:
                self._backend.cancel(batch)
        finally:
            for batch, job in jobs.items():
                job._end(_latency(batch), error)


def _latency(batch: Batch) -> Latency | None:
    return batch.relquery.latency if batch.relquery is not None else None


def _texts(name: str, given: Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigError(f"{name} is {given!r}; it must be a list of strings.")
    return tuple(given)


def _prompts(given: Iterable[str | Prompt]) -> list[Prompt]:
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise ConfigError(
            f"prompts is a {type(given).__name__}; it must be a list of prompts. For one prompt "
            "give a list of one: engine.submit([prompt])."
        )
    return [_prompt(index, each) for index, each in enumerate(given)]


def _prompt(index: int, given: object) -> Prompt:
    if isinstance(given, str):
        return (Span(given),)
    if isinstance(given, (tuple, list)) and all(isinstance(span, Span) for span in given):
        return tuple(given)
    raise ConfigError(
        f"Prompt {index} is a {type(given).__name__}; it must be a string, or a tuple of Spans "
        "(relquery.prompt.Span)."
    )
