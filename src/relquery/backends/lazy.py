"""A backend opened at its first call: a query is checked before a model is loaded for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

from relquery.arrays import TokenIds
from relquery.backends.base import Answers, Backend, Heard, SpanState, Tally
from relquery.prompt import Prompt, Sampling


class LazyBackend(Backend):
    """Stands for the backend that `load` opens, and hands on all that a Backend is asked.

    Each method raises what opening raises; closing it before the first call opens nothing.
    """

    def __init__(self, load: Callable[[], Backend]) -> None:
        self._load = load
        self._opened: Backend | None = None
        self._opening = 0.0

    def clock(self) -> float:
        """Seconds from any start, without those that opening the backend took."""
        return perf_counter() - self._opening

    @property
    def name(self) -> str:
        """The opened backend's name."""
        return self._backend.name

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Answers:
        """See Backend."""
        return self._backend.answer(prompts, sampling)

    def deliver(self, prompts: Sequence[Prompt], sampling: Sampling, heard: Heard) -> Answers:
        """See Backend."""
        return self._backend.deliver(prompts, sampling, heard)

    def note_known(self, sampling: Sampling) -> None:
        """See Backend."""
        self._backend.note_known(sampling)

    def check(self, sampling: Sampling) -> None:
        """See Backend."""
        self._backend.check(sampling)

    def close(self) -> None:
        """Close the backend if it was opened."""
        if self._opened is not None:
            self._opened.close()

    def known_as(self) -> tuple[str, ...]:
        """See Backend."""
        return self._backend.known_as()

    @property
    def price_share(self) -> float:
        """See Backend."""
        return self._backend.price_share

    def tally(self) -> Tally | None:
        """See Backend. Opens nothing."""
        return None if self._opened is None else self._opened.tally()

    @property
    def cache_tokens(self) -> int | None:
        """See Backend."""
        return self._backend.cache_tokens

    @property
    def block_tokens(self) -> int | None:
        """See Backend."""
        return self._backend.block_tokens

    @property
    def has_modules(self) -> bool:
        """See Backend."""
        return self._backend.has_modules

    @property
    def context(self) -> int | None:
        """See Backend."""
        return self._backend.context

    @property
    def token_bytes(self) -> int | None:
        """See Backend."""
        return self._backend.token_bytes

    @property
    def concurrency(self) -> int | None:
        """See Backend."""
        return self._backend.concurrency

    @property
    def requests_per_minute(self) -> float | None:
        """See Backend."""
        return self._backend.requests_per_minute

    @property
    def tokens_per_minute(self) -> float | None:
        """See Backend."""
        return self._backend.tokens_per_minute

    def one_pass(self, sampling: Sampling) -> bool | None:
        """See Backend."""
        return self._backend.one_pass(sampling)

    def prompt_tokens(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[int] | None:
        """See Backend."""
        return self._backend.prompt_tokens(prompts, sampling)

    def predict(
        self, prompt_tokens: Sequence[int], sampling: Sampling, cached: int = 0
    ) -> float | None:
        """See Backend."""
        return self._backend.predict(prompt_tokens, sampling, cached)

    def runs(self, prompt: Prompt) -> list[TokenIds] | None:
        """See Backend."""
        return self._backend.runs(prompt)

    def prepare(self, prompts: Sequence[Prompt]) -> None:
        """See Backend."""
        self._backend.prepare(prompts)

    def inspect(self, prompt: Prompt) -> tuple[SpanState, ...] | None:
        """See Backend."""
        return self._backend.inspect(prompt)

    @property
    def _backend(self) -> Backend:
        if self._opened is None:
            begin = perf_counter()
            self._opened = self._load()
            self._opening = perf_counter() - begin
        return self._opened
