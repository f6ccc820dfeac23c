"""Executors that keep what tokens were drawn from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from relquery.arrays import Slots
from relquery.engine.executor import Chunk, Drawn
from relquery.engine.requests.request import Draw
from relquery.model import native_runtime
from relquery.model.native_runtime import NativeExecutor
from relquery.model.sampler import Logits, follow_draws
from relquery.model.torch_runtime import executor
from relquery.model.torch_runtime.executor import TorchExecutor


class _Recording:
    """Keeps the logits that each request's tokens were drawn from."""

    module: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logits: dict[int, list[Tensor]] = {}
        self._drawing: list[int] = []

    def execute(self, chunks: Sequence[Chunk]) -> list[Drawn | None]:
        self._drawing = [chunk.request for chunk in chunks if chunk.draw]
        above: Any = super()
        with replaced(self.module, "follow_draws", self._draw):
            return above.execute(chunks)  # type: ignore[no-any-return]

    def follow(self, tokens: Sequence[int], slots: Slots) -> list[Drawn | None] | None:
        above: Any = super()
        with replaced(self.module, "follow_draws", self._draw):
            return above.follow(tokens, slots)  # type: ignore[no-any-return]

    def _draw(self, logits: Logits, draws: Sequence[Draw]) -> list[Drawn]:
        for at, request in enumerate(self._drawing):
            self.logits.setdefault(request, []).append(torch.from_numpy(logits.row(at).copy()))
        return follow_draws(logits, draws)


class Recorded(_Recording, TorchExecutor):
    """On torch."""

    module = executor


class RecordedNative(_Recording, NativeExecutor):
    """On the native runtime."""

    module = native_runtime


@contextmanager
def replaced(module: Any, name: str, value: Any) -> Iterator[None]:
    old = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, old)
