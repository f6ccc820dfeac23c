"""Falcon: rotary positions, keys shared by groups of heads, attention hard-coded in the module."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn
from transformers.models.falcon.modeling_falcon import apply_rotary_pos_emb

from relquery.errors import UnsupportedNetworkError
from relquery.model.torch_runtime.adapters.handover import BATCH, replace_attention
from relquery.model.torch_runtime.attention.function import NAME, attention


def adapt_falcon(network: Any) -> None:
    """Make a FalconForCausalLM call our attention function.

    Raises UnsupportedNetworkError for one with ALiBi: its code rounds the biases to bfloat16, so
    that beyond 256 tokens they do not follow from the distance of two tokens.
    """
    if network.config.alibi:
        raise UnsupportedNetworkError(
            "its ALiBi biases are rounded, so the engine cannot repeat them."
        )
    network.config._attn_implementation = NAME  # set_attn_implementation refuses it
    replace_attention(network, _attentions, _forward)


def _attentions(network: Any) -> Iterable[nn.Module]:
    return [block.self_attention for block in network.transformer.h]


def _forward(
    module: Any, hidden_states: Tensor, position_embeddings: tuple[Tensor, Tensor], **kwargs: Any
) -> tuple[Tensor, None]:
    """FalconAttention.forward. hidden_states: (1, tokens, hidden)."""
    query, key, value = (
        states.transpose(1, 2) for states in _split(module, module.query_key_value(hidden_states))
    )
    rotate: Any = apply_rotary_pos_emb  # its source has no types
    query, key = rotate(query, key, *position_embeddings)
    output, _ = attention(
        module, query, key, value, None, module.inv_norm_factor, batch=BATCH.get()
    )
    return module.dense(output.flatten(2)), None


def _split(module: Any, fused: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries (1, tokens, heads, head_dim); keys and values with one head for each that differs."""
    if not module.new_decoder_architecture:
        parts: tuple[Tensor, Tensor, Tensor] = module._split_heads(fused)
        return parts
    groups = fused.view(*fused.shape[:2], module.num_kv_heads, -1, module.head_dim)
    return groups[..., :-2, :].flatten(2, 3), groups[..., -2, :], groups[..., -1, :]
