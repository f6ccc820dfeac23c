"""Attention of queries over one padded set of keys, with the log-sum-exp needed to merge."""

from __future__ import annotations

import torch
from torch import Tensor


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Softmax attention and its log-sum-exp.

    query: (jobs, heads, q, head_dim); key, value: (jobs, kv_heads, k, head_dim), kv_heads a
    divisor of heads. mask: additive, broadcastable to (jobs, heads, q, k), -inf where hidden.
    causal: query i sees keys 0..i. softcap: scores become softcap * tanh(scores / softcap).
    Returns output (jobs, heads, q, head_dim) and log-sum-exp (jobs, heads, q) in float32, which
    is -inf for a query that sees nothing.
    """
    if query.device.type != "cpu" or softcap is not None or key.shape[-1] != value.shape[-1]:
        return _attend_by_products(query, key, value, scale, mask, causal, softcap)
    jobs, heads, queries, width = query.shape
    shown = mask
    grouped = queries == 1 and (mask is None or mask.shape[-2] == 1)
    if grouped:  # heads that share keys become queries, so that each key is read once
        query = query.reshape(jobs, key.shape[1], -1, width)
        if mask is not None and mask.shape[1] > 1:
            shown = mask.reshape(*query.shape[:3], -1)
    output, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, causal, attn_mask=shown, scale=scale
    )
    if grouped:
        output, lse = output.reshape(jobs, heads, 1, width), lse.reshape(jobs, heads, 1)
    if mask is not None:  # the kernel gives 0 where nothing is seen
        seen = (mask > -torch.inf).any(-1)
        lse = lse.masked_fill(~seen, -torch.inf)
    return output, lse


def _attend_by_products(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    mask: Tensor | None,
    causal: bool,
    softcap: float | None,
) -> tuple[Tensor, Tensor]:
    """The same with matrix products: any device, any variant, memory for all scores."""
    jobs, heads, queries, width = query.shape
    grouped = query.reshape(jobs, key.shape[1], -1, queries, width)
    scores = (grouped @ key.unsqueeze(2).transpose(-1, -2)).float() * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if mask is not None:
        groups = grouped.shape[1:3] if mask.shape[1] > 1 else (1, 1)
        scores = scores + mask.reshape(jobs, *groups, *mask.shape[2:])
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    lse = torch.logsumexp(scores, -1)
    weights = torch.exp(scores - lse.nan_to_num(neginf=0.0).unsqueeze(-1))
    output = weights.to(value.dtype) @ value.unsqueeze(2)
    return output.reshape(jobs, heads, queries, -1), lse.reshape(jobs, heads, queries)
