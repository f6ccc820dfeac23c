"""One asker's backend on an engine of ours, wherever that runs; each of its calls is a job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from numbers import Real
from queue import SimpleQueue
from threading import Lock
from typing import Any
from weakref import finalize

from relquery.backends.base import (
    Answers,
    AnswerStream,
    Backend,
    Insight,
    Limits,
    OnAnswer,
    SpanState,
)
from relquery.backends.local.asking import Piece
from relquery.backends.local.host import CLOSED, EngineHost, Facts, Submission
from relquery.backends.scoring import Scores, score
from relquery.engine.requests.declared import Declared
from relquery.engine.requests.labels import Normalization
from relquery.engine.requests.relquery import Latency
from relquery.errors import ConfigError, RequestError
from relquery.prompt import Answer, Finish, Prompt, Reuse, Sampling, Span

Bell = SimpleQueue[None]


class Job:
    """A relQuery that was submitted. Made by Engine.submit; any thread may use it.

    Iterating gives (index into prompts, answer) as answers come, and ends after the last; each
    iteration gives all of them. It waits where need be, and raises what broke the job. The length
    is the number of prompts.
    """

    def __init__(self, host: EngineHost, size: int, keep: object = None) -> None:
        """keep: is held until the end, so that what computes the answers lives as long as somebody
        waits for them."""
        self._host, self._size, self._keep = host, size, keep
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
        until = None if timeout is None else self._host.clock.now() + float(timeout)
        return in_order(self._follow(until), len(self))

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
        return not self.done and self._host.cancel(self)

    def estimate(self) -> float | None:
        """Predicted seconds from now to the last answer: 0 once it is done; None if not known.

        Waits for the step that runs.
        """
        seconds: float | None = 0.0 if self.done else self._host.ask("forecast", self)
        return seconds

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
                # Read before the answers, none of which comes after it.
                over = self._over or self._error is not None
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
            self._host.hear(bell, until)
        except TimeoutError:
            raise TimeoutError(
                f"Timed out with {self.answered} of {len(self)} answers. The job is still "
                "running: call result() again, or cancel it."
            ) from None


class EngineClient(Backend, Insight):
    """One asker's backend. Each call is a relQuery of the engine, beside those of others. One
    thread uses it at a time.

    tenant: who asks. declared: the relQuery that all calls belong to; None for one each. adapter:
    that answers, by name. It does not own the engine: closing it closes nothing.
    """

    def __init__(
        self,
        host: EngineHost,
        facts: Facts,
        tenant: str = "",
        declared: Declared | None = None,
        adapter: str = "",
    ) -> None:
        self.host, self.facts, self.tenant = host, facts, tenant
        self.declared, self.adapter = declared, adapter
        self._known_as: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        """The model's name and version, and the adapter's name."""
        return f"{self.facts.name}+{self.adapter}" if self.adapter else self.facts.name

    def begin(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        scored: Normalization | None = None,
        keep: object = None,
    ) -> Job:
        """Submit prompts, and return at once. scored, keep: see Submission and Job.

        Raises ConfigError where the engine is closed.
        """
        job = Job(self.host, len(prompts), self if keep is None else keep)
        asked = Submission(
            prompts,
            sampling,
            self.tenant,
            scored,
            declared=self.declared,
            adapter=self.adapter,
        )
        if not self.host.submit(asked, job):
            raise ConfigError(CLOSED)
        return job

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Answers:
        """Answers of a job that is submitted at once: several calls run in the same steps."""
        return _Taken(self.begin(prompts, sampling))

    def answers(
        self, prompts: Sequence[Prompt], sampling: Sampling, scored: Normalization | None = None
    ) -> list[Answer]:
        """All answers, in the order of the prompts. What is open when this is left is cancelled."""
        job = self.begin(prompts, sampling, scored)
        try:
            return in_order(job, len(job))
        finally:
            job.cancel()

    def score(
        self,
        prompts: Iterable[str | Prompt],
        labels: Sequence[str],
        normalization: Normalization = "joint",
    ) -> list[Scores]:
        """How likely each label is as the answer to each prompt. See Engine.score."""
        return score(self.answers, prompts, labels, normalization)

    def check(self, sampling: Sampling) -> None:
        self.ask("check", sampling)

    def known_as(self) -> tuple[str, ...]:
        if self._known_as is None:
            self._known_as = tuple(self.ask("known_as", self.adapter))
        return self._known_as

    @property
    def limits(self) -> Limits:
        facts = self.facts
        return Limits(facts.context, facts.cache_tokens, facts.block_tokens, has_modules=True)

    @property
    def insight(self) -> Insight:
        return self

    def ask(self, question: str, *given: Any) -> Any:
        return self.host.ask(question, *given)

    def inspect(self, prompt: Prompt) -> tuple[SpanState, ...] | None:
        states: tuple[SpanState, ...] = self.ask("inspect", prompt, self.tenant, self.adapter)
        return states

    def prepare(self, prompts: Sequence[Prompt]) -> None:
        """Compute states, which are the tenant's own; all may read them where there is none."""
        if not self.tenant:
            self.ask("share", list(prompts), self.adapter)
        for answer in self.answers([_ended(prompt) for prompt in prompts], Sampling(max_tokens=1)):
            if answer.finish is Finish.ERROR:
                raise RequestError(answer.error or "A prompt cannot be prepared.")


class _Taken(AnswerStream):
    """The answers of a job; what is open is cancelled when this is closed or dropped."""

    def __init__(self, job: Job) -> None:
        self._job, self._answers = job, iter(job)
        self._leave = finalize(self, job.cancel)
        self._leave.atexit = False

    def listen(self, on_answer: OnAnswer, *, is_settled: bool = False) -> None:
        del is_settled
        self._job.listen(on_answer)

    def __next__(self) -> tuple[int, Answer]:
        try:
            return next(self._answers)
        except BaseException:
            self._leave()
            raise

    def close(self) -> None:
        self._leave()


def in_order(answers: Iterable[tuple[int, Answer]], size: int) -> list[Answer]:
    """All answers in the order of their prompts."""
    by_index = dict(answers)
    return [by_index[index] for index in range(size)]


def _ended(prompt: Prompt) -> Prompt:
    """The prompt with a line break at its end if it ends with an independent span."""
    if not prompt or prompt[-1].reuse is Reuse.PREFIX:
        return prompt
    return (*prompt, Span("\n", prompt[-1].role))
