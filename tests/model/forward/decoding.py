"""Prompts that are decoded step by step, and compared with what the network computes by itself."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from relquery.engine.executor import Chunk, Segment
from relquery.model.torch_runtime.attention import PackedBatch
from relquery.model.torch_runtime.cache import KVCache
from relquery.model.torch_runtime.executor import Forward

CPU = torch.device("cpu")


class Decoding:
    """Prompts that share a beginning, in one cache, of which some get a token at each step.

    network: computes with full masks. forward: is compared with it.
    """

    def __init__(self, network: Any, forward: Forward, prompts: int, seed: int) -> None:
        self.network, self.forward = network, forward
        self.random = np.random.default_rng(seed)
        self.vocabulary = network.config.get_text_config().vocab_size
        shared = self.draw(self.random.integers(0, 30))
        self.ids = [shared + self.draw(self.random.integers(1, 12)) for _ in range(prompts)]
        self.shared = len(shared)
        room = 60
        self.cache = KVCache(self.shared + prompts * room)
        order = self.random.permutation(self.cache.slots)
        own = order[self.shared :].reshape(prompts, room)
        self.slots = [np.concatenate([order[: self.shared], each]) for each in own]
        for number, ids in enumerate(self.ids):
            start = self.shared if number else 0
            self.compute([self.chunk(number, start, ids)])

    def draw(self, count: Any) -> list[int]:
        return cast("list[int]", self.random.integers(3, self.vocabulary, count).tolist())

    def chunk(self, number: int, start: int, ids: list[int]) -> Chunk:
        slots = self.slots[number]
        context = (Segment(slots[:start]),) if start else ()
        tokens = np.array(ids[start:], dtype=np.int32)
        return Chunk(number, tokens, start, context, slots[start : len(ids)])

    def compute(
        self, chunks: list[Chunk], wanted: list[int] | None = None, scratch: KVCache | None = None
    ) -> Tensor:
        """Logits of the wanted tokens of the batch; None for all."""
        batch = PackedBatch(chunks, self.cache, True, CPU, scratch=scratch)
        tokens = np.concatenate([each.tokens for each in chunks]).astype(np.int64)
        return self.forward(tokens, batch, list(range(len(tokens))) if wanted is None else wanted)

    def step(self, count: int) -> None:
        """Give some prompts a token, and compare their logits with the network's own."""
        self.grow([1] * count, count)

    def grow(self, counts: list[int], wanted: int) -> None:
        """Give some prompts so many tokens each, and compare the logits of so many tokens of these,
        of any of them."""
        chunks = self._grown(counts)
        rows = self._rows(chunks, wanted)
        self._compare(chunks, rows, self.compute(chunks, rows))

    def _grown(self, counts: list[int]) -> list[Chunk]:
        chunks: list[Chunk] = []
        for number in self.random.permutation(len(self.ids))[: len(counts)].tolist():
            start = len(self.ids[number])
            self.ids[number] += self.draw(counts[len(chunks)])
            chunks.append(self.chunk(number, start, self.ids[number]))
        return chunks

    def _rows(self, chunks: list[Chunk], wanted: int) -> list[int]:
        tokens = sum(len(chunk.tokens) for chunk in chunks)
        return sorted(self.random.permutation(tokens)[:wanted].tolist())

    def _compare(self, chunks: list[Chunk], rows: list[int], found: Tensor) -> None:
        places = [
            (chunk.request, chunk.position + each)
            for chunk in chunks
            for each in range(len(chunk.tokens))
        ]
        for logits, (number, last) in zip(found, [places[row] for row in rows], strict=True):
            ids = torch.tensor([self.ids[number][: last + 1]])
            expected = self.network(ids, use_cache=False).logits[0, -1]
            room = 5e-5 * float(expected.abs().max())
            torch.testing.assert_close(logits, expected, rtol=0, atol=room)
