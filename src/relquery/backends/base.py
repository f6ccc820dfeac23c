"""What every backend offers: the embedded engine, a server, a provider's API."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from relquery.prompt import Answer, Prompt, Sampling


class Backend(Protocol):
    """Answers prompts. Implementations ship in this package; any object of this form will do."""

    @property
    def name(self) -> str:
        """The model's name as a person would write it, for reports."""

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Answer]]:
        """Serve all prompts, in the order given where order matters for reuse.

        Yields (index into prompts, answer) as answers finish, each index exactly once. A prompt
        that cannot be served yields an answer with an error. Closing the iterator cancels what
        is still open. Requests of one call form one relQuery. Without a seed, prompts that are
        equal are drawn one by one.
        """

    def close(self) -> None:
        """Free what the backend holds. The backend cannot be used afterwards."""
