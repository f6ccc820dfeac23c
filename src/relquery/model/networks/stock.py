"""The stock `transformers` network, called directly: what the engine is measured against."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedModel

from relquery.model.forward.linear import PackedLinear
from relquery.model.networks.random import RandomSpec, build_network, byte_tokenizer


def set_threads(count: int) -> None:
    """Threads that torch uses for one operation."""
    torch.set_num_threads(count)


def parameters(network: PreTrainedModel) -> int:
    """Parameters of a network, without embeddings."""
    embeddings = list(network.get_input_embeddings().parameters())
    known, places = {id(p) for p in embeddings}, {p.data_ptr() for p in embeddings}
    others = sum(p.numel() for p in network.parameters() if id(p) not in known)
    packed = {
        module.packed
        for module in network.modules()
        if isinstance(module, PackedLinear) and module.place not in places  # not tied to them
    }
    return others + sum(each.count for each in packed)


def random_network(spec: str) -> PreTrainedModel:
    """The network of a specification "random:...", without our attention or packed weights."""
    network = build_network(RandomSpec.parse(spec), byte_tokenizer(), torch.float32)
    network.set_attn_implementation("sdpa")
    return network


@torch.inference_mode()
def prefill(network: PreTrainedModel, tokens: npt.NDArray[np.int64]) -> None:
    """One forward pass over (requests, tokens), last logits only."""
    ids = torch.from_numpy(tokens).to(network.device)
    network(input_ids=ids, use_cache=False, logits_to_keep=1)
