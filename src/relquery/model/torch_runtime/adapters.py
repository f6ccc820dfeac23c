"""Networks whose attention is hard-coded in their modules: BLOOM, Falcon and MPT.

Their own code drops unknown arguments on the way down, so the batch reaches their attention in a
context variable. Two hooks are easier to maintain than copies of every forward in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    BloomForCausalLM,
    FalconForCausalLM,
    MptForCausalLM,
    PreTrainedModel,
)
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.falcon.modeling_falcon import apply_rotary_pos_emb
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

from relquery.errors import UnsupportedNetworkError
from relquery.model.torch_runtime.attention import NAME, attention

_BATCH: ContextVar[Any] = ContextVar("batch", default=None)
"""The batch of the running network. Passes that take turns each have their own context."""


def adapt(network: PreTrainedModel) -> bool:
    """Make a network call our attention function, if there is an adapter for it.

    Changes the network permanently. Returns False if there is none; then use
    `set_attn_implementation`.
    """
    for kind, adapter in _ADAPTERS.items():
        if isinstance(network, kind):
            adapter(network)
            return True
    return False


def _replace_attention(
    network: Any, attentions: Iterable[nn.Module], forward: Callable[..., Any]
) -> None:
    """Make each of the attention modules run `forward(module, ...)` instead of its own.

    While the network runs, its keyword argument `batch` is the value of _BATCH. That is reset when
    the pass ends, even if it failed, so that no batch outlives its step.
    """

    def give(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        _BATCH.set(kwargs.get("batch"))

    def take(module: nn.Module, args: Any, output: Any) -> None:
        _BATCH.set(None)

    for each in attentions:
        setattr(each, "forward", MethodType(forward, each))  # noqa: B010 (mypy)
    network.register_forward_pre_hook(give, with_kwargs=True)
    network.register_forward_hook(take, always_call=True)


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, scale: float, slopes: Any = None
) -> Tensor:
    """Outputs (1, tokens, hidden) of queries, keys and values, each (1, heads, tokens, width)."""
    output, _ = attention(module, query, key, value, None, scale, alibi=slopes, batch=_BATCH.get())
    return output.flatten(2)


def _adapt_bloom(network: Any) -> None:
    # set_attn_implementation refuses our name, so it is set here; with it, no mask is built.
    network.config._attn_implementation = NAME
    # Biases of keys at positions 0 and 1: their difference is the slope.
    mask: Tensor = torch.ones(1, 2, device=network.device)
    biases: Any = build_alibi_tensor(mask, network.config.n_head, torch.float32)
    attentions = [block.self_attention for block in network.transformer.h]
    for module in attentions:
        module.slopes = (biases[:, 0, 1] - biases[:, 0, 0]).contiguous()
    _replace_attention(network, attentions, _bloom)


def _bloom(module: Any, hidden: Tensor, residual: Tensor, **kwargs: Any) -> tuple[Tensor, None]:
    """BloomAttention.forward. hidden, residual: (1, tokens, hidden)."""
    query, key, value = module._reshape(module.query_key_value(hidden))
    output = _attend(module, query, key, value, module.inv_norm_factor, module.slopes)
    return module.dense(output) + residual, None


def _adapt_mpt(network: Any) -> None:
    # Biases of keys one token before the last and at the last: their difference is the slope.
    build: Any = build_mpt_alibi_tensor  # its source has no types
    biases = build(network.config.n_heads, 2, device=network.device)
    attentions = [block.attn for block in network.transformer.blocks]
    for module in attentions:
        module.slopes = (biases[:, 0, 1] - biases[:, 0, 0]).float().contiguous()
    _replace_attention(network, attentions, _mpt)
    network.register_forward_pre_hook(_no_mask, with_kwargs=True)


def _no_mask(network: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Give a four-dimensional mask, which is used unchanged; otherwise each step builds one."""
    mask = torch.zeros(1, 1, 1, 1, dtype=torch.bool, device=network.device)
    return args, kwargs | {"attention_mask": mask}


def _mpt(module: Any, hidden_states: Tensor, **kwargs: Any) -> tuple[Tensor, None]:
    """MptAttention.forward. hidden_states: (1, tokens, hidden)."""
    projected = module.Wqkv(hidden_states)
    if module.clip_qkv:
        projected = projected.clamp(-module.clip_qkv, module.clip_qkv)
    query, key, value = (
        states.unflatten(-1, (module.n_heads, module.head_dim)).transpose(1, 2)
        for states in projected.chunk(3, dim=-1)
    )
    output = _attend(module, query, key, value, module.softmax_scale, module.slopes)
    return module.out_proj(output), None


def _adapt_falcon(network: Any) -> None:
    """Raises UnsupportedNetworkError for one with ALiBi: its code rounds the biases to bfloat16, so
    that beyond 256 tokens they do not follow from the distance of two tokens."""
    if network.config.alibi:
        raise UnsupportedNetworkError(
            "its ALiBi biases are rounded, so the engine cannot repeat them."
        )
    network.config._attn_implementation = NAME  # set_attn_implementation refuses it
    _replace_attention(network, [block.self_attention for block in network.transformer.h], _falcon)


def _falcon(
    module: Any, hidden_states: Tensor, position_embeddings: tuple[Tensor, Tensor], **kwargs: Any
) -> tuple[Tensor, None]:
    """FalconAttention.forward. hidden_states: (1, tokens, hidden)."""
    fused = module.query_key_value(hidden_states)
    if module.new_decoder_architecture:  # keys and values have one head for each group of queries
        groups = fused.view(*fused.shape[:2], module.num_kv_heads, -1, module.head_dim)
        parts = groups[..., :-2, :].flatten(2, 3), groups[..., -2, :], groups[..., -1, :]
    else:
        parts = module._split_heads(fused)
    query, key, value = (states.transpose(1, 2) for states in parts)
    rotate: Any = apply_rotary_pos_emb  # its source has no types
    query, key = rotate(query, key, *position_embeddings)
    return module.dense(_attend(module, query, key, value, module.inv_norm_factor)), None


_ADAPTERS: dict[type[PreTrainedModel], Callable[[Any], None]] = {
    BloomForCausalLM: _adapt_bloom,
    FalconForCausalLM: _adapt_falcon,
    MptForCausalLM: _adapt_mpt,
}
