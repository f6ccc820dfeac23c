"""A network's own forward pass, with our attention function."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from relquery.arrays import Int64s
from relquery.model.torch_runtime.attention.batch import PackedBatch
from relquery.model.torch_runtime.graphs import GraphedSteps


class Forward:
    """How the tokens of a step become logits."""

    def __init__(self, network: PreTrainedModel) -> None:
        self.network = network
        self._graphs = GraphedSteps(network) if network.device.type == "cuda" else None

    def __call__(self, tokens: Int64s, batch: PackedBatch, wanted: Sequence[int]) -> Tensor:
        """Logits (wanted, vocabulary) after some of a batch's tokens (tokens,)."""
        if self._graphs is not None and len(wanted) == batch.tokens:
            logits = self._graphs(tokens, batch)
            if logits is not None:
                return logits
        device = self.network.device
        output = self.network(
            input_ids=torch.from_numpy(tokens)[None].to(device),
            position_ids=torch.from_numpy(batch.positions)[None].to(device),
            use_cache=False,
            logits_to_keep=torch.tensor(wanted, dtype=torch.long, device=device),
            batch=batch,
        )
        found: Tensor = output.logits[0]
        return found
