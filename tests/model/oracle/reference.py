"""Attention as the textbook has it: one request, all scores, explicit masks, float64."""

from __future__ import annotations

import torch
from torch import Tensor


def dense_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    visible: Tensor,
    scale: float,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Output (q, heads, head_dim) and log-sum-exp (q, heads).

    query: (q, heads, head_dim); key, value: (k, kv_heads, head_dim); visible: (q, k) booleans.
    """
    query, key, value = query.double(), key.double(), value.double()
    group = query.shape[1] // key.shape[1]
    outputs, lses = [], []
    for head in range(query.shape[1]):
        scores = query[:, head] @ key[:, head // group].T * scale
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        scores = scores.masked_fill(~visible, -torch.inf)
        lses.append(scores.logsumexp(-1))
        weights = scores.softmax(-1).nan_to_num(0.0)
        outputs.append(weights @ value[:, head // group])
    return torch.stack(outputs, 1), torch.stack(lses, 1)


def visible_keys(first: int, queries: int, window: int | None = None) -> Tensor:
    """(queries, first + queries) booleans: causal, and within a sliding window if there is one.

    first: position of the first query; keys begin at position 0.
    """
    query_at = torch.arange(first, first + queries)[:, None]
    key_at = torch.arange(first + queries)[None, :]
    near = query_at - key_at < window if window is not None else True
    return (key_at <= query_at) & near
