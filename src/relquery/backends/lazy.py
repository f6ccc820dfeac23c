"""A backend opened at its first call: a query is checked before a model is loaded for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

from relquery.backends.base import Answers, Backend, Insight, Limits, Tally
from relquery.prompt import Prompt, Sampling


class LazyBackend(Backend):
    """Stands for the backend that `load` opens.

    Each member raises what opening raises; closing it before the first call opens nothing.
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
        return self._backend.answer(prompts, sampling)

    def check(self, sampling: Sampling) -> None:
        self._backend.check(sampling)

    def close(self) -> None:
        """Close the backend if it was opened."""
        if self._opened is not None:
            self._opened.close()

    def known_as(self) -> tuple[str, ...]:
        return self._backend.known_as()

    def tally(self) -> Tally | None:
        """See Backend. Opens nothing."""
        return None if self._opened is None else self._opened.tally()

    @property
    def limits(self) -> Limits:
        return self._backend.limits

    @property
    def insight(self) -> Insight:
        return self._backend.insight

    @property
    def _backend(self) -> Backend:
        if self._opened is None:
            begin = perf_counter()
            self._opened = self._load()
            self._opening = perf_counter() - begin
        return self._opened
