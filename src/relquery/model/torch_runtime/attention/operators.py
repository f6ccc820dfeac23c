"""Attention of queries over one padded set of keys, with the log-sum-exp needed to merge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

SCORES = 1 << 25
"""The most scores held at once in matrix products: 128 MiB of float32."""
Part = tuple[Tensor, Tensor]
"""Keys (jobs, kv_heads, k, head_dim) and values (jobs, kv_heads, k, value_dim)."""


def attend(
    query: Tensor,
    parts: Sequence[Part],
    scale: float,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Softmax attention and its log-sum-exp.

    query: (jobs, heads, q, head_dim), heads a multiple of kv_heads. parts: one for all jobs, or
    one per job with its own number of keys. mask: additive, broadcastable to (jobs, heads, q, k)
    of the longest part, -inf where hidden. causal: query i sees keys 0..i. softcap: scores become
    softcap * tanh(scores / softcap). Returns output (jobs, heads, q, value_dim) and log-sum-exp
    (jobs, heads, q) in float32, which is -inf for a query that sees nothing.
    """
    jobs, heads, queries, width = query.shape
    key, value = parts[0]
    # torch's operator takes no mask in float32 for states in float64, and does not say so.
    fits = query.dtype != torch.float64 and key.shape[-1] == value.shape[-1] and softcap is None
    if query.device.type != "cpu" or not fits:
        kernel = partial(_attend_by_products, scale=scale, causal=causal, softcap=softcap)
        return _each(kernel, query, parts, mask)
    shown = mask
    grouped = queries == 1 and (mask is None or mask.shape[-2] == 1)
    if grouped:  # heads that share keys become queries, so that each key is read once
        query = query.reshape(jobs, key.shape[1], -1, width)
        if mask is not None and mask.shape[1] > 1:
            shown = mask.reshape(*query.shape[:3], -1)
    kernel = partial(_attend_on_cpu, scale=scale, causal=causal)
    output, lse = _each(kernel, query, parts, shown)
    if grouped:
        output, lse = output.reshape(jobs, heads, 1, width), lse.reshape(jobs, heads, 1)
    if mask is not None:  # the kernel returns 0 for queries that see nothing
        seen = (mask > -torch.inf).any(-1)
        lse = lse.masked_fill(~seen, -torch.inf)
    return output, lse


def _each(
    kernel: Callable[[Tensor, Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor]],
    query: Tensor,
    parts: Sequence[Part],
    mask: Tensor | None,
) -> tuple[Tensor, Tensor]:
    if len(parts) == 1:
        return kernel(query, *parts[0], mask)
    results = [
        kernel(one, key, value, None if mask is None else mask[job, None, ..., : key.shape[2]])
        for job, (one, (key, value)) in enumerate(zip(torch.split(query, 1), parts, strict=True))
    ]
    outputs, lses = zip(*results, strict=True)
    return torch.cat(outputs), torch.cat(lses)


def _attend_on_cpu(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, causal: bool
) -> tuple[Tensor, Tensor]:
    output, lse = torch._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, causal, attn_mask=mask, scale=scale
    )
    return output, lse


def _attend_in_blocks(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scale: float,
    causal: bool,
    softcap: float | None,
    block: int,
) -> tuple[Tensor, Tensor]:
    """By products, `block` queries at a time; causal queries do not read later keys."""
    outputs, lses = [], []
    for start in range(0, query.shape[2], block):
        stop = min(start + block, query.shape[2])
        seen = stop if causal else key.shape[2]
        shown = mask
        if mask is not None:
            shown = mask[..., start:stop, :seen] if mask.shape[-2] > 1 else mask[..., :seen]
        if causal:
            at, keys = torch.arange(start, stop), torch.arange(seen)
            later = (keys[None] > at[:, None]).to(query.device)
            hidden = torch.zeros(later.shape, device=query.device).masked_fill(later, -torch.inf)
            shown = (0.0 if shown is None else shown) + hidden.expand(len(query), 1, -1, -1)
        output, lse = _attend_by_products(
            query[:, :, start:stop],
            key[:, :, :seen],
            value[:, :, :seen],
            shown,
            scale,
            False,
            softcap,
        )
        outputs.append(output)
        lses.append(lse)
    return torch.cat(outputs, 2), torch.cat(lses, 2)


def _attend_by_products(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scale: float,
    causal: bool,
    softcap: float | None,
) -> tuple[Tensor, Tensor]:
    """The same with matrix products: for any device and variant, with bounded score memory."""
    jobs, heads, queries, width = query.shape
    block = max(1, SCORES // (jobs * heads * key.shape[2]))
    if queries > block:
        return _attend_in_blocks(query, key, value, mask, scale, causal, softcap, block)
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
