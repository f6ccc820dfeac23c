"""Jobs whose steps a test runs itself, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relquery.backends.local.asking import Piece
from relquery.backends.local.batches import PromptBatch
from relquery.backends.local.embedded import EmbeddedBackend
from relquery.backends.local.host import Submission
from relquery.engine.requests.relquery import Latency
from relquery.prompt import Answer, Prompt, Sampling


class Collected:
    """A Sink that keeps what comes. batch: the job in the engine; None if it ended at once.

    arrival: see LoadedEngine.submit. more: of a Submission.
    """

    def __init__(
        self,
        backend: EmbeddedBackend,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        arrival: float | None = None,
        **more: Any,
    ) -> None:
        self.answers: list[tuple[int, Answer]] = []
        self.pieces: list[tuple[int, Piece]] = []
        self.is_open = True
        self._backend = backend
        backend.submit(Submission(prompts, sampling, **more), self, arrival)
        self.batch: PromptBatch | None = backend.batches.jobs.get(self)

    def piece(self, index: int, piece: Piece) -> None:
        self.pieces.append((index, piece))

    def add(self, index: int, answer: Answer) -> None:
        self.answers.append((index, answer))

    def end(self, latency: Latency | None, error: BaseException | None = None) -> None:
        self.is_open = False

    def finish(self) -> dict[int, Answer]:
        """Run steps until all answers are there; gives them."""
        while self.is_open:
            self._backend.batches.step()
        return dict(self.answers)
