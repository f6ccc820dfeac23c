"""One asker's view of an engine that serves several: a backend whose calls are jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from weakref import finalize

from relquery.arrays import TokenIds
from relquery.backends.base import AnswerStream, Backend, Insight, Limits, OnAnswer, SpanState
from relquery.backends.local.preparing import check_prepared, to_prepare
from relquery.backends.service.delivery import Delivery
from relquery.backends.service.job import Job
from relquery.backends.service.serving import Facts, Serving, Submission
from relquery.engine.requests.declared import Declared
from relquery.errors import CancelledError, ConfigError
from relquery.prompt import Answer, Prompt, Sampling


class ServedBackend(Backend, Insight):
    """Each call is a relQuery of the engine, beside those of others. One thread uses it at a time.

    tenant: who asks. declared: the relQuery that all calls belong to; None for one each. adapter:
    that answers, by name. It does not own the engine: closing it closes nothing.
    """

    def __init__(
        self,
        serving: Serving,
        facts: Facts,
        tenant: str = "",
        declared: Declared | None = None,
        adapter: str = "",
    ) -> None:
        self._serving, self._facts, self._tenant = serving, facts, tenant
        self._declared, self._adapter = declared, adapter
        self._token_bytes: int | None = None
        self._known_as: tuple[str, ...] | None = None
        self._jobs: set[Job] = set()
        self._cancelled = False

    def cancel(self) -> None:
        """End what is open, from any thread. Whoever waits for it, or asks later, gets a
        CancelledError. Waits for the step that runs.
        """
        self._cancelled = True
        for job in list(self._jobs):
            job.cancel()

    @property
    def name(self) -> str:
        """The model's name and version, and the adapter's name."""
        return f"{self._facts.name}+{self._adapter}" if self._adapter else self._facts.name

    def known_as(self) -> tuple[str, ...]:
        """See Backend."""
        if self._known_as is None:
            self._known_as = tuple(self._serving.ask("known_as", self._adapter))
        return self._known_as

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> AnswerStream:
        """See Backend. The job is submitted at once."""
        delivery = Delivery(len(prompts), keep=self)
        return _Taken(self, self._submit(prompts, sampling, delivery), delivery)

    def check(self, sampling: Sampling) -> None:
        """See Backend."""
        self._serving.ask("check", sampling)

    @property
    def limits(self) -> Limits:
        """See Backend."""
        facts = self._facts
        return Limits(facts.context, facts.cache_tokens, facts.block_tokens, has_modules=True)

    @property
    def insight(self) -> Insight:
        """See Backend."""
        return self

    def token_bytes(self) -> int:
        """See Insight."""
        if self._token_bytes is None:
            self._token_bytes = int(self._serving.ask("token_bytes"))
        return self._token_bytes

    def one_pass(self, sampling: Sampling) -> bool | None:
        """See Backend."""
        found: bool | None = self._serving.ask("one_pass", sampling)
        return found

    def prompt_tokens(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[int] | None:
        """See Backend."""
        found: list[int] | None = self._serving.ask("prompt_tokens", list(prompts), sampling)
        return found

    def predict(
        self, prompt_tokens: Sequence[int], sampling: Sampling, cached: int = 0
    ) -> float | None:
        """See Backend."""
        found: float | None = self._serving.ask("predict", prompt_tokens, sampling, cached)
        return found

    def runs(self, prompt: Prompt) -> list[TokenIds] | None:
        """See Backend."""
        found: list[TokenIds] | None = self._serving.ask("runs", prompt)
        return found

    def prepare(self, prompts: Sequence[Prompt]) -> None:
        """See Backend. The states are the tenant's own; all may read them where there is none."""
        whole, sampling = to_prepare(prompts)
        if not self._tenant:
            self._serving.ask("share", list(prompts), self._adapter)
        check_prepared(answer for _, answer in self.answer(whole, sampling))

    def inspect(self, prompt: Prompt) -> tuple[SpanState, ...] | None:
        """See Backend."""
        given = (prompt, self._tenant, self._adapter)
        found: tuple[SpanState, ...] | None = self._serving.ask("inspect", *given)
        return found

    def _submit(self, prompts: Sequence[Prompt], sampling: Sampling, delivery: Delivery) -> Job:
        self._check()
        asked = Submission(
            prompts, sampling, self._tenant, declared=self._declared, adapter=self._adapter
        )
        if not self._serving.submit(asked, delivery):
            raise ConfigError("The engine is closed. Open another one: relquery.Engine(model).")
        job = Job(self._serving, delivery)
        self._jobs.add(job)
        if self._cancelled:  # in the meantime
            job.cancel()
        return job

    def _check(self) -> None:
        if self._cancelled:
            raise CancelledError("What was asked has been cancelled.")

    def take(self, job: Job) -> Iterator[tuple[int, Answer]]:
        """A job's answers, at the end of which it is forgotten."""
        try:
            for each in job:
                self._check()
                yield each
            self._check()
        finally:
            self.end(job)

    def end(self, job: Job) -> None:
        """Cancel what is open of a job."""
        job.cancel()
        self._jobs.discard(job)


class _Taken(AnswerStream):
    """The answers of a job. Dropping it cancels what is open."""

    def __init__(self, backend: ServedBackend, job: Job, delivery: Delivery) -> None:
        self._delivery, self._taking = delivery, backend.take(job)
        self._end = finalize(self, backend.end, job)

    def listen(self, on_answer: OnAnswer, *, is_settled: bool = False) -> None:
        """See AnswerStream."""
        del is_settled
        self._delivery.listen(on_answer)

    def __next__(self) -> tuple[int, Answer]:
        return next(self._taking)

    def close(self) -> None:
        """See AnswerStream."""
        self._end()
