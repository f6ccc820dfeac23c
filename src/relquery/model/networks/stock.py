"""The stock `transformers` network, called directly: what the engine is measured against."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedModel

from relquery.model.forward.linear import packed_weights


def set_threads(count: int) -> None:
    """Threads that torch uses for one operation."""
    torch.set_num_threads(count)


def parameters(network: PreTrainedModel) -> int:
    """Parameters of a network, without embeddings."""
    embeddings = {id(p) for p in network.get_input_embeddings().parameters()}
    others = sum(p.numel() for p in network.parameters() if id(p) not in embeddings)
    return others + sum(packed.count for packed in packed_weights(network))


@torch.inference_mode()
def prefill(network: PreTrainedModel, tokens: npt.NDArray[np.int64]) -> None:
    """One forward pass over (requests, tokens) with torch's own attention, last logits only."""
    ours = network.config._attn_implementation
    network.set_attn_implementation("sdpa")
    try:
        ids = torch.from_numpy(tokens).to(network.device)
        network(input_ids=ids, use_cache=False, logits_to_keep=1)
    finally:
        network.set_attn_implementation(ours)
