"""What asks an engine that serves several: its jobs, and a backend whose calls are jobs.

The engine runs on a thread of this process (Worker) or in a process of its own (Link).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Real
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any, Protocol, TypeVar, overload
from weakref import finalize

from relquery.arrays import TokenIds
from relquery.backends.base import AnswerStream, Backend, Insight, Limits, OnAnswer, SpanState
from relquery.backends.local.asking import Piece
from relquery.backends.local.batches import Sink
from relquery.backends.local.rendering import check_prepared, to_prepare
from relquery.engine.executor import Clock
from relquery.engine.requests.declared import Declared
from relquery.engine.requests.labels import Normalization
from relquery.engine.requests.relquery import Latency
from relquery.errors import CancelledError, ConfigError
from relquery.prompt import Answer, Prompt, Sampling
from relquery.tools import HERMES, CallForm

T = TypeVar("T")
Bell = SimpleQueue[None]
TICK = 0.25  # seconds that a wait lasts at most: on Windows Ctrl-C is heard only between waits
CLOSED = "The engine is closed. Open another one: relquery.Engine(model)."


class Packed(Sequence[Prompt]):
    """Prompts for another process. Those who pass them on have bytes, which they need not read."""

    def __init__(self, prompts: Sequence[Prompt]) -> None:
        self._size = len(prompts)
        self._content: bytes | list[Prompt] = pickle.dumps(list(prompts), pickle.HIGHEST_PROTOCOL)

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> Prompt: ...
    @overload
    def __getitem__(self, index: slice) -> list[Prompt]: ...
    def __getitem__(self, index: int | slice) -> Prompt | list[Prompt]:
        content = self._content
        if isinstance(content, bytes):
            content = self._content = list(pickle.loads(content))
        return content[index]


@dataclass(frozen=True, slots=True)
class Submission:
    """Prompts that are asked as one relQuery, and how; see Engine.submit and Engine.score."""

    prompts: Sequence[Prompt]
    sampling: Sampling
    tenant: str = ""
    scored: Normalization | None = None
    streamed: bool = False
    declared: Declared | None = None
    """What the client says about the relQuery; None for nothing."""
    adapter: str = ""
    """By name, "" for the engine's usual one."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What never changes about an open engine's model; see Limits."""

    name: str
    context: int
    cache_tokens: int
    block_tokens: int
    policy: str
    """Its name."""
    calls: CallForm = HERMES
    """How the model writes calls of tools."""


class Serving(Protocol):
    """An engine that takes jobs from any thread."""

    clock: Clock
    closed: bool

    def submit(self, submission: Submission, sink: Sink) -> bool:
        """Queue a job; its answers go to the sink. Returns at once; False if it is closed."""

    def cancel(self, sink: Sink) -> bool:
        """End what is open of a job; False if nothing is. Waits for the step that runs."""

    def forecast(self, sink: Sink) -> float | None:
        """Seconds until a job's last answer; see Job.estimate. Waits for the step that runs."""

    def ask(self, question: str, *given: Any) -> Any:
        """What a method of the backend returns between two steps; one of QUESTIONS.

        Raises what the method raises, and ConfigError if the engine is closed.
        """

    def hear(self, bell: SimpleQueue[T], until: float | None) -> T:
        """The next thing that comes into a queue which the engine fills.

        until: on the clock, when to give up with a TimeoutError. Raises ConfigError if the engine
        has stopped without it.
        """

    def stop(self) -> None:
        """Cancel what is open and end."""


def heard(
    bell: SimpleQueue[T], until: float | None, clock: Clock, is_alive: Callable[[], bool]
) -> T:
    """The next thing that a thread puts in; see Serving.hear. is_alive: whether it still runs."""
    while True:
        alive = is_alive()  # before the wait: afterwards it puts nothing in
        left = TICK if until is None else min(TICK, max(0.0, until - clock.now()))
        try:
            return bell.get(timeout=left)
        except Empty:
            if not alive:
                raise ConfigError("The engine has stopped. Open another one.") from None
            if until is not None and clock.now() >= until:
                raise TimeoutError from None


class Job:
    """A relQuery that was submitted. Made by Engine.submit; any thread may use it.

    Iterating gives (index into prompts, answer) as answers come, and ends after the last; each
    iteration gives all of them. It waits where need be, and raises what broke the job. The length
    is the number of prompts.
    """

    def __init__(self, serving: Serving, size: int, keep: object = None) -> None:
        """keep: is held until the end, so that what computes the answers lives as long as somebody
        waits for them."""
        self._serving, self._size, self._keep = serving, size, keep
        self._came = list[tuple[int, Answer]]()
        self._over = size == 0
        self._latency: Latency | None = None
        self._error: BaseException | None = None
        self._bells: list[Bell] = []
        self._listeners: list[OnAnswer] = []
        self._lock = Lock()

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[tuple[int, Answer]]:
        return self._follow(None)

    def result(self, timeout: float | None = None) -> list[Answer]:
        """All answers, in the order of the prompts.

        timeout: seconds to wait at most; None for as long as it takes. Raises TimeoutError after
        them, while the job goes on, and what broke the job.
        """
        if isinstance(timeout, bool) or not isinstance(timeout, Real | None):
            raise ConfigError(f"timeout is {timeout!r}; it must be a number of seconds, or None.")
        until = None if timeout is None else self._serving.clock.now() + float(timeout)
        answers = dict(self._follow(until))
        return [answers[index] for index in range(len(self))]

    @property
    def answered(self) -> int:
        """Prompts whose answer has come, be it an error. Does not wait."""
        return len(self._came)

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
        return not self.done and self._serving.cancel(self)

    def estimate(self) -> float | None:
        """Predicted seconds from now to the last answer: 0 once it is done; None if not known.

        Waits for the step that runs.
        """
        return 0.0 if self.done else self._serving.forecast(self)

    def __repr__(self) -> str:
        state = "failed after " if self._error else ""
        return f"<Job, {state}{self.answered} of {len(self)} answers>"

    def listen(self, on_answer: OnAnswer) -> None:
        """Have each answer told once: as it comes, before it can be taken, or now if it has."""
        with self._lock:
            self._listeners.append(on_answer)
            came = list(self._came)
        for each in came:
            on_answer(*each)

    # What follows is called by the engine's thread; see Sink.

    def piece(self, index: int, piece: Piece) -> None:
        """Nobody who waits for whole answers reads pieces."""

    def add(self, index: int, answer: Answer) -> None:
        """An answer has come."""
        with self._lock:
            try:
                for on_answer in self._listeners:
                    on_answer(index, answer)
            except Exception as error:  # a ledger that cannot be written: this job's own trouble
                self._error = self._error or error
            else:
                self._came.append((index, answer))
        self._ring()

    def end(self, latency: Latency | None, error: BaseException | None = None) -> None:
        """No more answers come."""
        self._latency, self._error, self._over = latency, self._error or error, True
        self._ring()
        self._keep = None

    def _ring(self) -> None:
        for bell in tuple(self._bells):
            bell.put(None)

    def _follow(self, until: float | None) -> Iterator[tuple[int, Answer]]:
        """All answers, those that have come at once. until: on the clock, when to give up."""
        bell: Bell = SimpleQueue()
        self._bells.append(bell)
        seen = 0
        try:
            while True:
                over = (
                    self._over or self._error is not None
                )  # read before the answers, none of which comes after it
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

    def _wait(self, bell: Bell, until: float | None) -> None:
        try:
            self._serving.hear(bell, until)
        except TimeoutError:
            raise TimeoutError(
                f"Timed out with {self.answered} of {len(self)} answers. The job is still "
                "running: call result() again, or cancel it."
            ) from None


class EngineClient(Backend, Insight):
    """One asker's backend. Each call is a relQuery of the engine, beside those of others. One
    thread uses it at a time.

    serving, facts: the engine. tenant: who asks. declared: the relQuery that all calls belong to;
    None for one each. adapter: that answers, by name. It does not own the engine: closing it closes
    nothing.
    """

    def __init__(
        self,
        serving: Serving,
        facts: Facts,
        tenant: str = "",
        declared: Declared | None = None,
        adapter: str = "",
    ) -> None:
        self.serving, self.facts, self.tenant = serving, facts, tenant
        self.declared, self.adapter = declared, adapter
        self._token_bytes: int | None = None
        self._known_as: tuple[str, ...] | None = None
        self._jobs: set[Job] = set()
        self._cancelled = False

    @property
    def name(self) -> str:
        """The model's name and version, and the adapter's name."""
        return f"{self.facts.name}+{self.adapter}" if self.adapter else self.facts.name

    def submit(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        scored: Normalization | None = None,
        keep: object = None,
    ) -> Job:
        """Queue prompts, and return at once. scored, keep: see Submission and Job.

        Raises CancelledError after `cancel`, and ConfigError where the engine is closed.
        """
        self._check()
        job = Job(self.serving, len(prompts), self if keep is None else keep)
        declared, adapter = self.declared, self.adapter
        asked = Submission(
            prompts, sampling, self.tenant, scored, declared=declared, adapter=adapter
        )
        if not self.serving.submit(asked, job):
            raise ConfigError(CLOSED)
        return job

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> AnswerStream:
        """See Backend. The job is submitted at once."""
        return self._taken(self.submit(prompts, sampling))

    def answers(
        self, prompts: Sequence[Prompt], sampling: Sampling, scored: Normalization | None = None
    ) -> list[Answer]:
        """All answers, in the order of the prompts. What is open when this is left is cancelled."""
        taken = self._taken(self.submit(prompts, sampling, scored))
        try:
            found = dict(taken)
        finally:
            taken.close()
        return [found[index] for index in range(len(prompts))]

    def cancel(self) -> None:
        """End what is open, from any thread. Whoever waits for it, or asks later, gets a
        CancelledError. Waits for the step that runs.
        """
        self._cancelled = True
        for job in list(self._jobs):
            job.cancel()

    def check(self, sampling: Sampling) -> None:
        self.serving.ask("check", sampling)

    def known_as(self) -> tuple[str, ...]:
        if self._known_as is None:
            self._known_as = tuple(self.serving.ask("known_as", self.adapter))
        return self._known_as

    @property
    def limits(self) -> Limits:
        facts = self.facts
        return Limits(facts.context, facts.cache_tokens, facts.block_tokens, has_modules=True)

    @property
    def insight(self) -> Insight:
        return self

    def one_pass(self, sampling: Sampling) -> bool | None:
        found: bool | None = self.serving.ask("one_pass", sampling)
        return found

    def prompt_tokens(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[int] | None:
        found: list[int] | None = self.serving.ask("prompt_tokens", list(prompts), sampling)
        return found

    def predict(
        self, prompt_tokens: Sequence[int], sampling: Sampling, cached: int = 0
    ) -> float | None:
        found: float | None = self.serving.ask("predict", prompt_tokens, sampling, cached)
        return found

    def runs(self, prompt: Prompt) -> list[TokenIds] | None:
        found: list[TokenIds] | None = self.serving.ask("runs", prompt)
        return found

    def inspect(self, prompt: Prompt) -> tuple[SpanState, ...] | None:
        given = (prompt, self.tenant, self.adapter)
        found: tuple[SpanState, ...] | None = self.serving.ask("inspect", *given)
        return found

    def token_bytes(self) -> int:
        if self._token_bytes is None:
            self._token_bytes = int(self.serving.ask("token_bytes"))
        return self._token_bytes

    def prepare(self, prompts: Sequence[Prompt]) -> None:
        """See Insight. The states are the tenant's own; all may read them where there is none."""
        whole, sampling = to_prepare(prompts)
        if not self.tenant:
            self.serving.ask("share", list(prompts), self.adapter)
        check_prepared(self.answers(whole, sampling))

    def _taken(self, job: Job) -> _Taken:
        self._jobs.add(job)
        if self._cancelled:  # in the meantime
            job.cancel()
        return _Taken(self, job)

    def take(self, job: Job) -> Iterator[tuple[int, Answer]]:
        """A job's answers. Raises CancelledError after `cancel`."""
        for each in job:
            self._check()
            yield each
        self._check()

    def leave(self, job: Job) -> None:
        """Cancel what is open of a job, and forget it."""
        job.cancel()
        self._jobs.discard(job)

    def _check(self) -> None:
        if self._cancelled:
            raise CancelledError("What was asked has been cancelled.")


class _Taken(AnswerStream):
    """The answers of a client's job; what is open is cancelled when it is closed or dropped."""

    def __init__(self, client: EngineClient, job: Job) -> None:
        self._job, self._taking = job, client.take(job)
        self._leave = finalize(self, client.leave, job)
        self._leave.atexit = False

    def listen(self, on_answer: OnAnswer, *, is_settled: bool = False) -> None:
        del is_settled
        self._job.listen(on_answer)

    def __next__(self) -> tuple[int, Answer]:
        try:
            return next(self._taking)
        except BaseException:
            self._leave()
            raise

    def close(self) -> None:
        self._leave()
