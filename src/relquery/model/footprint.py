"""How much memory a model needs: for weights, per cached token, and for a step of given size."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from relquery.arrays import Slots
from relquery.engine.executor import SCRATCH, Chunk, Segment
from relquery.engine.request.request import Draw
from relquery.model.forward.linear import packed_bytes
from relquery.model.networks.load import LoadedModel
from relquery.model.slices.memory import peak_bytes
from relquery.model.slices.turns import longest_slice
from relquery.model.torch_executor import TorchExecutor

_LAYERS = 4
"""Number of layers used to measure a long step; layers after the first take the same memory."""


@dataclass(slots=True)
class Footprint:
    """Bytes, measured by running a model (the profile run of paper 004, section 3.1).

    weights: of the model. cached_token: of one token in the KV cache.
    """

    model: LoadedModel
    weights: int = field(init=False)
    cached_token: int = field(init=False)

    def __post_init__(self) -> None:
        network = self.model.network
        tensors: list[Tensor] = [*network.parameters(), *network.buffers()]
        storages = {each.untyped_storage()._cdata: each.untyped_storage() for each in tensors}
        self.weights = sum(storage.nbytes() for storage in storages.values())
        self.weights += packed_bytes(network)
        executor = TorchExecutor(self.model.forward, 1)
        executor.execute([self._chunk(1, np.arange(1))])
        self.cached_token = executor.slot_bytes

    def one_prompt(self, tokens: int, slice_tokens: int, *, all_layers: bool = False) -> int:
        """Bytes of a step that computes a whole prompt and keeps none of it.

        Long prompts are only run in the first layers, unless later layers are found to take more.
        all_layers: always compute all layers.
        """
        if all_layers or tokens <= 2 * longest_slice(slice_tokens) or self._grows(slice_tokens):
            return self._measure(tokens, slice_tokens, None)
        return self._measure(tokens, slice_tokens, _LAYERS)

    def many_prompts(self, tokens: int, prompts: int, slice_tokens: int) -> int:
        """Bytes of a step of `tokens` tokens in equally long prompts, each with a token to draw."""
        length = max(1, tokens // prompts)
        slots = SCRATCH + np.arange(length * prompts).reshape(prompts, length)
        return self._peak([self._chunk(length, each) for each in slots], slice_tokens, None)

    def kept_prompt(self, tokens: int, chunk_tokens: int) -> int:
        """Bytes for computing a prompt in chunks that all stay in the cache, as in engines that
        decode (chunked prefill), or in one chunk (plain prefill). The cache is included."""
        executor = TorchExecutor(self.model.forward, tokens, slice_tokens=tokens)

        def run() -> None:
            slots = np.arange(tokens)
            for start in range(0, tokens, chunk_tokens):
                executor.execute([self._chunk(min(chunk_tokens, tokens - start), slots, start)])

        return peak_bytes(run, self._device)

    @property
    def hidden_token(self) -> int:
        """Bytes of one token between two layers."""
        embedding: Any = self.model.network.get_input_embeddings()
        return int(embedding.weight.shape[1]) * int(embedding.weight.element_size())

    @property
    def is_fast(self) -> bool:
        """Whether running the longest prompt is fast enough; on a CPU it takes minutes."""
        return self._device.type == "cuda"

    @property
    def _device(self) -> torch.device:
        return self.model.network.device

    def _grows(self, slice_tokens: int) -> bool:
        """Whether layers after the first ones take more memory than those."""
        tokens = 2 * longest_slice(slice_tokens) + 1
        whole = self._measure(tokens, slice_tokens, None)
        return whole > 1.01 * self._measure(tokens, slice_tokens, _LAYERS)

    def _measure(self, tokens: int, slice_tokens: int, layers: int | None) -> int:
        return self._peak([self._chunk(tokens, SCRATCH + np.arange(tokens))], slice_tokens, layers)

    def _peak(self, chunks: list[Chunk], slice_tokens: int, layers: int | None) -> int:
        executor = TorchExecutor(
            self.model.forward, 0, slice_tokens=slice_tokens, release=self.model.release
        )
        if layers is None:
            return peak_bytes(lambda: executor.execute(chunks), self._device)
        return peak_bytes(lambda: executor.rehearse(chunks, layers), self._device)

    def _chunk(self, tokens: int, slots: Slots, start: int = 0) -> Chunk:
        """Tokens of a prompt whose first `start` are computed. slots: of the whole prompt."""
        embedding: Any = self.model.network.get_input_embeddings()
        vocabulary = int(embedding.weight.shape[0])
        ids = (np.arange(start, start + tokens) % vocabulary).astype(np.int32)
        context = (Segment(slots[:start]),) if start else ()
        return Chunk(0, ids, start, context, slots[start : start + tokens], Draw())
