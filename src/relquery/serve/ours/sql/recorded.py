"""The backend of a statement whose prompts are recorded."""

from __future__ import annotations

from relquery.arrays import TokenIds
from relquery.backends.base import Backend
from relquery.backends.lazy import LazyBackend
from relquery.prompt import Prompt


class Recorded(LazyBackend):
    """Does not tell the tokens of single prompts.

    A recording would ask for them some ten times for each prompt, each time between two steps of an
    engine that serves others. It estimates how much text was reused instead.
    """

    def __init__(self, backend: Backend) -> None:
        super().__init__(lambda: backend)

    def runs(self, prompt: Prompt) -> list[TokenIds] | None:
        """See Backend."""
        del prompt
        return None
