"""The attention function that `transformers` networks call: packed tokens, segmented contexts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface

from relquery.errors import ModelError
from relquery.model.batch import PackedBatch
from relquery.model.kernels import attend

NAME = "relquery"
"""Name under which the function is registered; a network's `_attn_implementation`."""


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    batch: PackedBatch | None = None,
    alibi: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of a packed batch over its segments, as `AttentionInterface` asks for.

    query: (1, heads, tokens, head_dim); key, value: (1, kv_heads, tokens, head_dim). alibi:
    (heads,) slopes, by which scores fall with the distance. Writes keys and values to the batch's
    cache. Returns (1, tokens, heads, head_dim).
    """
    if batch is None:
        raise ModelError("This network does not hand the batch on to its attention function.")
    if kwargs.get("s_aux") is not None:
        raise ModelError("Networks with attention sinks are not supported by the local engine.")
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    queries, keys, values = (t[0].transpose(0, 1) for t in (query, key, value))
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    batch.cache.write(layer, batch.writes, keys, values)
    outputs = query.new_empty(batch.tokens, query.shape[1], value.shape[-1])
    partials: list[tuple[Tensor, Tensor, Tensor]] = []
    rotate_keys = batch.rotate == "keys"
    for item in batch.buckets:
        if item.bucket.causal:
            k, v = (_pick(packed, item.keys, item.start) for packed in (keys, values))
        else:
            k, v = batch.cache.read(layer, item.keys, keys.shape[1], item.slot)
        q = _pick(queries, item.queries, item.start)
        k = batch.turned(layer, k, item.turn if rotate_keys else None)
        q = batch.turned(layer, q, None if rotate_keys else item.turn)
        mask = batch.mask(item, sliding_window)
        causal = item.bucket.causal and (mask is None or mask.shape[-2] == 1)
        q, k, v = (states.transpose(1, 2) for states in (q, k, v))
        if alibi is not None:
            mask, offset = batch.with_distance(item, mask, alibi)
        output, lse = attend(q, k, v, scale, mask=mask, causal=causal, softcap=softcap)
        rows = _rows(output.transpose(1, 2), item.rows)
        if item.merging is not None:
            lse = lse + offset if alibi is not None else lse
            partials.append((item.merging, rows, _rows(lse.transpose(1, 2), item.rows)))
        elif len(rows) == batch.tokens and item.start == 0:
            return rows.unsqueeze(0), None
        elif item.start is not None:
            outputs[item.start : item.start + len(rows)] = rows
        else:
            outputs.index_copy_(0, item.tokens, rows)
    if partials:
        outputs.index_copy_(0, batch.merged, _merge(partials, len(batch.merged)))
    return outputs.unsqueeze(0), None


def _merge(partials: list[tuple[Tensor, Tensor, Tensor]], count: int) -> Tensor:
    """Partial results, weighted by their share of the softmax's denominator: (count, heads, dim).

    partials: (which of the `count` tokens, output, log-sum-exp) of each bucket.
    """
    tokens, output, lse = (torch.cat(states) for states in zip(*partials, strict=True))
    largest = lse.new_full((count, lse.shape[1]), -torch.inf)
    largest.scatter_reduce_(0, tokens[:, None].expand_as(lse), lse, "amax")
    weight = torch.exp(lse - largest.index_select(0, tokens))
    total = torch.zeros_like(largest).index_add_(0, tokens, weight)
    weight = weight / total.index_select(0, tokens)
    merged = weight.new_zeros(count, *output.shape[1:])  # float32, whatever the network's type
    merged.index_add_(0, tokens, output * weight.unsqueeze(-1))
    return merged.to(output.dtype)


def _pick(packed: Tensor, index: Tensor, start: int | None) -> Tensor:
    """Rows of (tokens, heads, head_dim) by (jobs, n) indices, as (jobs, n, heads, head_dim)."""
    if start is None:
        picked = packed.index_select(0, index.reshape(-1))
    else:
        picked = packed[start : start + index.numel()]
    return picked.reshape(*index.shape, *packed.shape[1:])


def _rows(padded: Tensor, rows: Tensor | None) -> Tensor:
    """Real rows of a padded (jobs, q, ...) result, flattened."""
    flat = padded.flatten(0, 1)
    return flat if rows is None else flat.index_select(0, rows)


def _no_mask(*args: Any, **kwargs: Any) -> None:
    """The batch says what attends to what; a network need not build a mask."""


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, _no_mask)
