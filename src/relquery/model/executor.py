"""The executor that computes: chunks of many requests as one packed forward pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedModel

from relquery.config import Relocation
from relquery.engine.cidra import Batch
from relquery.engine.executor import Chunk
from relquery.errors import ModelError
from relquery.model.batch import PackedBatch, Rotate
from relquery.model.cache import KVCache
from relquery.model.rotary import PositionScheme
from relquery.model.sampling import draw_tokens


class TorchExecutor:
    """Runs a `transformers` decoder whose attention function is ours.

    slots: capacity of the KV cache in tokens. share, relocation: see EngineConfig. scheme: the
    network's positions, without which spans serve at theirs only.
    """

    def __init__(
        self,
        network: PreTrainedModel,
        slots: int,
        share: bool = True,
        scheme: PositionScheme | None = None,
        relocation: Relocation = "queries",
    ) -> None:
        self._network = network
        self._cache = KVCache(slots)
        self._share = share
        self._scheme = scheme
        self._rotate: Rotate = "keys" if relocation == "keys" else "queries"

    @torch.inference_mode()
    def execute(self, chunks: Sequence[Chunk]) -> list[int | None]:
        """Compute all chunks in one forward pass; logits only where a token is wanted."""
        device = self._network.device
        batch = PackedBatch(chunks, self._cache, self._share, device, self._scheme, self._rotate)
        tokens = np.concatenate([chunk.tokens for chunk in chunks]).astype(np.int64)
        ends = np.cumsum([len(chunk.tokens) for chunk in chunks]) - 1
        wanted = [(end, chunk) for end, chunk in zip(ends, chunks, strict=True) if chunk.draw]
        keep = torch.tensor([end for end, _ in wanted], dtype=torch.long, device=device)
        output = self._network(
            input_ids=torch.from_numpy(tokens)[None].to(device),
            position_ids=torch.from_numpy(batch.positions)[None].to(device),
            use_cache=False,
            logits_to_keep=keep,
            batch=batch,
        )
        if not wanted:
            return [None] * len(chunks)
        drawn = iter(draw_tokens(output.logits[0], [c.draw for _, c in wanted if c.draw]))
        return [next(drawn) if chunk.draw else None for chunk in chunks]

    @torch.inference_mode()
    def reserve(self) -> None:
        """Have the system give memory to the whole cache now; needs one executed step before."""
        self._cache.reserve()

    @torch.inference_mode()
    def relocate(self, batches: Sequence[Batch], block_size: int) -> None:
        """Rotate and move cached blocks. Raises ModelError if this network's keys cannot be."""
        if self._scheme is None or not self._scheme.relocatable:
            raise ModelError("This network's keys cannot be used at another position.")
        for batch in batches:
            sources, targets, turns = (
                np.array([getattr(move, name) for move in batch.moves])
                for name in ("source", "target", "turn")
            )
            self._cache.move(
                self._slots(sources, block_size),
                self._slots(targets, block_size),
                torch.from_numpy(turns.repeat(block_size)).to(self._network.device),
                self._scheme,
            )

    def _slots(self, blocks: npt.NDArray[np.int64], block_size: int) -> torch.Tensor:
        slots = (blocks[:, None] * block_size + np.arange(block_size)).reshape(-1)
        return torch.from_numpy(slots).to(self._network.device)
