"""A backend opened at its first call: a query is checked before a model is loaded for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from relquery.backends.base import Backend, known_as, one_pass, predict_all, prompt_tokens
from relquery.prompt import Answer, Prompt, Sampling


class LazyBackend:
    """Stands for the backend that `load` opens. Closing it before the first call opens nothing."""

    def __init__(self, load: Callable[[], Backend]) -> None:
        self._load = load
        self._opened: Backend | None = None

    @property
    def name(self) -> str:
        """The opened backend's name."""
        return self._backend.name

    def known_as(self) -> tuple[str, ...]:
        """See Identity."""
        return known_as(self._backend)

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Answer]]:
        """See Backend.answer. Raises what opening raises."""
        return self._backend.answer(prompts, sampling)

    def one_pass(self, sampling: Sampling) -> bool | None:
        """See Foresight, as for the others; raises what opening raises."""
        return one_pass(self._backend, sampling)

    def prompt_tokens(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[int] | None:
        """See Foresight."""
        return prompt_tokens(self._backend, prompts, sampling)

    def predict_all(self, prompt_tokens: Sequence[int], sampling: Sampling) -> float | None:
        """See Foresight."""
        return predict_all(self._backend, prompt_tokens, sampling)

    def close(self) -> None:
        """Close the backend if it was opened."""
        if self._opened is not None:
            self._opened.close()

    @property
    def _backend(self) -> Backend:
        if self._opened is None:
            self._opened = self._load()
        return self._opened
