"""A network's own forward pass, with our attention function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from relquery.arrays import Int64s
from relquery.model.attention.batch import PackedBatch
from relquery.model.forward.graphs import GraphedSteps


class Logits(NamedTuple):
    """What tokens are drawn from.

    rows: (rows, vocabulary). largest: (rows,) the token of each row's largest logit, the first of
    several, or NOT_FINITE; None where the forward pass has not looked for it.
    """

    rows: Tensor
    largest: Int64s | None = None


class Forward(Protocol):
    """How the tokens of a step become logits."""

    network: PreTrainedModel

    def __call__(self, tokens: Int64s, batch: PackedBatch, wanted: Sequence[int]) -> Logits:
        """Logits after some of a batch's tokens (tokens,)."""
        ...


class StockForward:
    """The network's own forward pass. See Forward."""

    def __init__(self, network: PreTrainedModel) -> None:
        self.network = network
        self._graphs = GraphedSteps(network) if network.device.type == "cuda" else None

    def __call__(self, tokens: Int64s, batch: PackedBatch, wanted: Sequence[int]) -> Logits:
        """See Forward."""
        if self._graphs is not None and len(wanted) == batch.tokens:
            logits = self._graphs(tokens, batch)
            if logits is not None:
                return Logits(logits)
        device = self.network.device
        output = self.network(
            input_ids=torch.from_numpy(tokens)[None].to(device),
            position_ids=torch.from_numpy(batch.positions)[None].to(device),
            use_cache=False,
            logits_to_keep=torch.tensor(wanted, dtype=torch.long, device=device),
            batch=batch,
        )
        return Logits(output.logits[0])
