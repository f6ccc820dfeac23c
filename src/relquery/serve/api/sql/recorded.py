"""The backend of a statement whose prompts are recorded."""

from __future__ import annotations

from collections.abc import Sequence

from relquery.backends.base import Backend, Insight
from relquery.backends.lazy import LazyBackend
from relquery.prompt import Prompt, Sampling


class Recorded(LazyBackend):
    """Does not tell the tokens of single prompts.

    A recording would ask for them some ten times for each prompt, each time between two steps of an
    engine that serves others. It estimates how much text was reused instead.
    """

    def __init__(self, backend: Backend) -> None:
        super().__init__(lambda: backend)

    @property
    def insight(self) -> Insight:
        return _Counts(super().insight)


class _Counts(Insight):
    """What is told of many prompts at once."""

    def __init__(self, whole: Insight) -> None:
        self._whole = whole

    def one_pass(self, sampling: Sampling) -> bool | None:
        return self._whole.one_pass(sampling)

    def prompt_tokens(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[int] | None:
        return self._whole.prompt_tokens(prompts, sampling)

    def predict(
        self, prompt_tokens: Sequence[int], sampling: Sampling, cached: int = 0
    ) -> float | None:
        return self._whole.predict(prompt_tokens, sampling, cached)
