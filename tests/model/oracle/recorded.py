"""An executor that keeps what tokens were drawn from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from relquery.arrays import Slots
from relquery.engine.executor import Chunk, Drawn
from relquery.engine.request.request import Draw
from relquery.model import torch_executor as executor_module
from relquery.model.forward.stock import Logits
from relquery.model.sampling import follow_draws
from relquery.model.torch_executor import TorchExecutor


class Recorded(TorchExecutor):
    """Keeps the logits that each request's tokens were drawn from."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logits: dict[int, list[Tensor]] = {}
        self._drawing: list[int] = []

    def execute(self, chunks: Sequence[Chunk]) -> list[Drawn | None]:
        self._drawing = [chunk.request for chunk in chunks if chunk.draw]
        with replaced(executor_module, "follow_draws", self._draw):
            return super().execute(chunks)

    def follow(self, tokens: Sequence[int], slots: Slots) -> list[Drawn | None] | None:
        with replaced(executor_module, "follow_draws", self._draw):
            return super().follow(tokens, slots)

    def _draw(self, logits: Logits, draws: Sequence[Draw]) -> list[Drawn]:
        for request, row in zip(self._drawing, logits.rows, strict=True):
            self.logits.setdefault(request, []).append(row.clone())
        return follow_draws(logits, draws)


@contextmanager
def replaced(module: Any, name: str, value: Any) -> Iterator[None]:
    old = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, old)
