"""MPT: ALiBi with its own slopes, and attention that is hard-coded in the module."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

from relquery.model.torch_runtime.adapters.handover import BATCH, replace_attention
from relquery.model.torch_runtime.attention.function import attention


def adapt_mpt(network: Any) -> None:
    """Make an MptForCausalLM call our attention function."""
    # Biases of keys one token before the last and at the last: their difference is the slope.
    build: Any = build_mpt_alibi_tensor  # its source has no types
    biases = build(network.config.n_heads, 2, device=network.device)
    for module in _attentions(network):
        module.slopes = (biases[:, 0, 1] - biases[:, 0, 0]).float().contiguous()
    replace_attention(network, _attentions, _forward)
    network.register_forward_pre_hook(_no_mask, with_kwargs=True)


def _attentions(network: Any) -> Iterable[nn.Module]:
    return [block.attn for block in network.transformer.blocks]


def _no_mask(
    network: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Give a four-dimensional mask, which is used unchanged; otherwise each step builds one."""
    mask = torch.zeros(1, 1, 1, 1, dtype=torch.bool, device=network.device)
    return args, kwargs | {"attention_mask": mask}


def _forward(module: Any, hidden_states: Tensor, **kwargs: Any) -> tuple[Tensor, None]:
    """MptAttention.forward. hidden_states: (1, tokens, hidden)."""
    projected = module.Wqkv(hidden_states)
    if module.clip_qkv:
        projected = projected.clamp(-module.clip_qkv, module.clip_qkv)
    query, key, value = (
        states.unflatten(-1, (module.n_heads, module.head_dim)).transpose(1, 2)
        for states in projected.chunk(3, dim=-1)
    )
    output, _ = attention(
        module,
        query,
        key,
        value,
        None,
        module.softmax_scale,
        alibi=module.slopes,
        batch=BATCH.get(),
    )
    return module.out_proj(output.flatten(2)), None
