"""One asker's view of an engine that serves several: a backend whose calls are jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from relquery.arrays import TokenIds
from relquery.backends.base import Answers, Backend, Heard, SpanState
from relquery.backends.local.preparing import check_prepared, to_prepare
from relquery.backends.service.delivery import Delivery
from relquery.backends.service.job import Job
from relquery.backends.service.serving import Facts, Serving, Submission
from relquery.engine.requests.declared import Declared
from relquery.errors import CancelledError, ConfigError
from relquery.prompt import Answer, Prompt, Sampling


class ServedBackend(Backend):
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

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Answers:
        """See Backend. The job is submitted at once."""
        return self._taken(self._submit(prompts, sampling, Delivery(len(prompts), keep=self)))

    def deliver(self, prompts: Sequence[Prompt], sampling: Sampling, heard: Heard) -> Answers:
        """See Backend."""
        delivery = _Heard(len(prompts), self, heard)
        return self._taken(self._submit(prompts, sampling, delivery))

    def check(self, sampling: Sampling) -> None:
        """See Backend."""
        self._serving.ask("check", sampling)

    @property
    def cache_tokens(self) -> int:
        """See Backend."""
        return self._facts.cache_tokens

    @property
    def block_tokens(self) -> int:
        """See Backend."""
        return self._facts.block_tokens

    @property
    def has_modules(self) -> bool:
        """See Backend."""
        return True

    @property
    def context(self) -> int:
        """See Backend."""
        return self._facts.context

    @property
    def token_bytes(self) -> int:
        """See Backend."""
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

    def _taken(self, job: Job) -> Iterator[tuple[int, Answer]]:
        """A job's answers; closing the iterator, begun or not, cancels what is open."""
        taking = self._take(job)
        next(taking)
        return taking  # type: ignore[return-value]

    def _take(self, job: Job) -> Iterator[tuple[int, Answer] | None]:
        try:
            yield None
            for each in job:
                self._check()
                yield each
            self._check()
        finally:
            job.cancel()
            self._jobs.discard(job)


class _Heard(Delivery):
    """A delivery that tells of each answer as it comes."""

    def __init__(self, size: int, keep: object, heard: Callable[[int, Answer], None]) -> None:
        super().__init__(size, keep)
        self._heard = heard

    def add(self, index: int, answer: Answer) -> None:
        """See Sink."""
        self._heard(index, answer)
        super().add(index, answer)
