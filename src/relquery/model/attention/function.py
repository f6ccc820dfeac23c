"""The attention function that `transformers` networks call: packed tokens, segmented contexts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface

from relquery.errors import ModelError
from relquery.model.attention.batch import DeviceBucket, PackedBatch
from relquery.model.attention.kernels import Part, attend

NAME = "relquery"
"""Name under which the function is registered; a network's `_attn_implementation`."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Sizes of sliding windows and the like, in tokens.

    asked: for which a network wanted a mask. used: which it then told its attention function.
    """

    asked: set[int] = field(default_factory=set)
    used: set[int] = field(default_factory=set)


_watching: ContextVar[Windows | None] = ContextVar("watching", default=None)


@contextmanager
def watch_windows() -> Iterator[Windows]:
    """What the networks that run meanwhile, in this thread, say of windows."""
    windows = Windows()
    before = _watching.set(windows)
    try:
        yield windows
    finally:
        _watching.reset(before)


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
        raise ModelError(
            "This network does not hand the batch on to its attention function, so it cannot run "
            "on the local engine. Use another model, or a server."
        )
    if kwargs.get("s_aux") is not None:
        raise ModelError("Networks with attention sinks are not supported by the local engine.")
    if sliding_window is not None and (windows := _watching.get()) is not None:
        windows.used.add(sliding_window)
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    queries, keys, values = (t[0].transpose(0, 1) for t in (query, key, value))
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    outputs_like = (batch.tokens, query.shape[1], value.shape[-1])
    batch.write(layer, keys, values)
    if batch.turn is not None:
        del keys, values  # views, which would keep alive what the turn releases
        batch.turn(layer, key, value)
        keys, values = batch.read_own(layer)
    outputs = query.new_empty(outputs_like)
    partials: list[tuple[Tensor, Tensor, Tensor]] = []
    for item in batch.buckets:
        q = _pick(queries, item.queries, item.start)
        q = batch.turned(layer, q, None if batch.rotate == "keys" else item.turn)
        mask, offset = batch.mask(item, sliding_window), None
        if alibi is not None:
            mask, offset = batch.with_distance(item, mask, alibi)
        causal = item.bucket.causal and (mask is None or mask.shape[-2] == 1)
        parts = _parts(batch, layer, item, keys, values)
        output, lse = attend(
            q.transpose(1, 2), parts, scale, mask=mask, causal=causal, softcap=softcap
        )
        rows = _rows(output.transpose(1, 2), item.rows)
        if item.merging is not None:
            lse = lse if offset is None else lse + offset
            partials.append((item.merging, rows, _rows(lse.transpose(1, 2), item.rows)))
        elif len(rows) == batch.tokens and item.start == 0:
            return rows.unsqueeze(0), None
        elif item.start is not None:
            outputs[item.start : item.start + len(rows)] = rows
        else:
            outputs.index_copy_(0, item.tokens, rows)
    if partials:
        merged = _merge_pair(partials) if batch.in_pairs else _merge(partials, len(batch.merged))
        if len(merged) == batch.tokens:
            return merged.unsqueeze(0), None
        outputs.index_copy_(0, batch.merged, merged)
    return outputs.unsqueeze(0), None


def _parts(
    batch: PackedBatch, layer: int, item: DeviceBucket, keys: Tensor, values: Tensor
) -> list[Part]:
    """Keys and values of a bucket's jobs: together, or per job if the cache is read in place.

    keys, values: (tokens, kv_heads, head_dim) of the packed batch.
    """
    bucket = item.bucket
    turn = item.turn if batch.rotate == "keys" else None
    if bucket.in_place:
        k, v = (states.transpose(1, 2) for states in batch.store(bucket).whole(layer))
        runs = zip(bucket.keys[:, 0].tolist(), bucket.key_counts.tolist(), strict=True)
        parts = [(k.narrow(2, slot, count), v.narrow(2, slot, count)) for slot, count in runs]
        if turn is None:
            return parts
        turned = (
            batch.turned(layer, k.transpose(1, 2), turn[job, None, : k.shape[2]])
            for job, (k, _) in enumerate(parts)
        )
        return [(k.transpose(1, 2), v) for k, (_, v) in zip(turned, parts, strict=True)]
    if bucket.causal:
        k, v = (_pick(packed, item.keys, item.start) for packed in (keys, values))
    else:
        k, v = batch.store(bucket).read(layer, item.keys)
        k = batch.turned(layer, k, turn)
    return [(k.transpose(1, 2), v.transpose(1, 2))]


def _merge_pair(partials: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """Like `_merge`, for two partial results of the same tokens in the same order."""
    (_, one, one_lse), (_, other, other_lse) = partials
    share = torch.sigmoid(one_lse - other_lse).unsqueeze(-1)
    return torch.lerp(other.float(), one.float(), share).to(one.dtype)


def _merge(partials: list[tuple[Tensor, Tensor, Tensor]], count: int) -> Tensor:
    """Sum of partial results, weighted by their share of the softmax denominator.

    Returns (count, heads, dim).

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


def _no_mask(*args: Any, local_size: int | None = None, **kwargs: Any) -> None:
    """The batch says what attends to what; a network need not build a mask."""
    if local_size is not None and (windows := _watching.get()) is not None:
        windows.asked.add(local_size)


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, _no_mask)
