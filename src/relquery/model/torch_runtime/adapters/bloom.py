"""BLOOM: ALiBi, and attention that is hard-coded in the module."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

from relquery.model.torch_runtime.adapters.handover import BATCH, replace_attention
from relquery.model.torch_runtime.attention.function import NAME, attention


def adapt_bloom(network: Any) -> None:
    """Make a BloomForCausalLM call our attention function."""
    # set_attn_implementation refuses our name, so it is set here; with it, no mask is built.
    network.config._attn_implementation = NAME
    heads, device = network.config.n_head, network.device
    # Biases of keys at positions 0 and 1: their difference is the slope.
    biases: Any = build_alibi_tensor(torch.ones(1, 2, device=device), heads, torch.float32)
    for module in _attentions(network):
        module.slopes = (biases[:, 0, 1] - biases[:, 0, 0]).contiguous()
    replace_attention(network, _attentions, _forward)


def _attentions(network: Any) -> Iterable[nn.Module]:
    return [block.self_attention for block in network.transformer.h]


def _forward(
    module: Any, hidden_states: Tensor, residual: Tensor, **kwargs: Any
) -> tuple[Tensor, None]:
    """BloomAttention.forward. hidden_states, residual: (1, tokens, hidden)."""
    query, key, value = module._reshape(module.query_key_value(hidden_states))
    output, _ = attention(
        module,
        query,
        key,
        value,
        None,
        module.inv_norm_factor,
        alibi=module.slopes,
        batch=BATCH.get(),
    )
    return module.dense(output.flatten(2)) + residual, None
