"""The attention function that `transformers` networks call: packed tokens, segmented contexts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface

from relquery.engine.executor import Chunk
from relquery.errors import ModelError
from relquery.model.cache import KVCache
from relquery.model.kernels import attend
from relquery.model.rotary import PositionScheme
from relquery.model.segments import Bucket, plan_buckets

Rotate = Literal["queries", "keys"]
NAME = "relquery"
"""Name under which the function is registered; a network's `_attn_implementation`."""


@dataclass(slots=True)
class _DeviceBucket:
    """A bucket as tensors, with the rows of its padded output that are real."""

    bucket: Bucket
    queries: Tensor
    keys: Tensor
    rows: Tensor | None
    packed: bool
    """Whether the queries are the whole packed batch in order, so that views of it serve."""
    turn: Tensor | None
    """(jobs, q): by how many positions to rotate queries, or (jobs, k): keys, to where they are."""
    masks: dict[int | None, Tensor | None] = field(default_factory=dict)


class PackedBatch:
    """All that attention needs to know of one step; the same for every layer.

    share: see EngineConfig.segment_sharing. scheme: how keys carry their position; needed where
    spans are used at another place than they were computed. rotate: "queries" per span, as
    DESIGN has it, or "keys" when they are read.
    """

    def __init__(
        self,
        chunks: Sequence[Chunk],
        cache: KVCache,
        share: bool,
        device: torch.device,
        scheme: PositionScheme | None = None,
        rotate: Rotate = "queries",
    ) -> None:
        self.cache, self.device = cache, device
        self.scheme, self.rotate = scheme, rotate
        self.writes = torch.from_numpy(np.concatenate([c.writes for c in chunks])).to(device)
        self.positions = np.concatenate(
            [np.arange(c.position, c.position + len(c.tokens)) for c in chunks]
        )
        buckets = plan_buckets(chunks, share, by_shift=rotate == "keys")
        self.buckets = [self._to_device(bucket) for bucket in buckets]
        tokens = [bucket.queries[_real(bucket)] for bucket in buckets]
        self.tokens = torch.from_numpy(np.concatenate(tokens)).to(device)
        """(partials,) token of the packed batch that each partial result belongs to."""
        counts = np.bincount(np.concatenate(tokens), minlength=len(self.positions))
        self.merge = bool((counts > 1).any())
        self.in_order = not self.merge and bool((np.diff(np.concatenate(tokens)) == 1).all())

    def mask(self, item: _DeviceBucket, window: int | None) -> Tensor | None:
        """Additive mask of a bucket under a sliding window; None if nothing is hidden."""
        if window not in item.masks:
            visible = self._visible(item.bucket, window)
            item.masks[window] = None
            if visible is not None:
                mask = torch.zeros(visible.shape, device=self.device)
                mask.masked_fill_(~torch.from_numpy(visible).to(self.device), -torch.inf)
                item.masks[window] = mask.unsqueeze(1)
        return item.masks[window]

    def with_distance(
        self, item: _DeviceBucket, mask: Tensor | None, slopes: Tensor
    ) -> tuple[Tensor, Tensor]:
        """ALiBi: (additive mask (jobs, heads, q or 1, k), what log-sum-exps (jobs, heads, q) lack).

        A score falls by slope x (position of the query - position of the key). The mask counts
        from the last key of the job, so that all queries share one; the rest is the same for all
        keys of a query, and matters only where partial results are merged.
        """
        positions = torch.from_numpy(item.bucket.positions).to(self.device)
        last = positions.amax(-1)
        falls = (positions - last[:, None])[:, None] * slopes[None, :, None]
        bias = falls[:, :, None].float()
        at = torch.from_numpy(item.bucket.at).to(self.device)
        offset = (last[:, None] - at)[:, None] * slopes[None, :, None]
        return bias if mask is None else mask + bias, offset.float()

    def _visible(self, bucket: Bucket, window: int | None) -> Any:
        """(jobs, q or 1, k) booleans, or None if all is visible (causality aside)."""
        width = bucket.keys.shape[1]
        columns = np.arange(width)
        within = columns[None, None, :] < bucket.key_counts[:, None, None]
        if window is not None and int(bucket.at.max() - bucket.positions.min()) >= window:
            near = bucket.at[:, :, None] - bucket.positions[:, None, :] < window
            near |= ~_real(bucket)[:, :, None]  # a padded query may see what it likes
            if bucket.causal:
                near &= np.tri(width, dtype=bool)[None]
            if not near.all():
                return within & near
        return None if bucket.causal or within.all() else within

    def _to_device(self, bucket: Bucket) -> _DeviceBucket:
        real = _real(bucket).reshape(-1)
        rows = None if real.all() else torch.from_numpy(np.flatnonzero(real)).to(self.device)
        return _DeviceBucket(
            bucket,
            torch.from_numpy(bucket.queries).to(self.device),
            torch.from_numpy(bucket.keys).to(self.device),
            rows,
            packed=np.array_equal(bucket.queries.reshape(-1), np.arange(len(self.positions))),
            turn=self._turn(bucket),
        )

    def _turn(self, bucket: Bucket) -> Tensor | None:
        if not bucket.shifted:
            return None
        if self.scheme is None or not self.scheme.relocatable:
            raise ModelError("This network's keys cannot be used at another position.")
        if self.rotate == "queries":
            return torch.from_numpy(-bucket.shifts).to(self.device)
        shifts = bucket.shifts[:, :1].repeat(bucket.keys.shape[1], axis=1)  # one for each job
        return torch.from_numpy(shifts).to(self.device)

    def turned(self, layer: int, states: Tensor, turn: Tensor | None) -> Tensor:
        """States (jobs, n, heads, head_dim), rotated to where they are used."""
        if turn is None:
            return states
        assert self.scheme is not None
        rotary = self.scheme.layers[layer]
        return states if rotary is None else rotary.rotate(states, turn)


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
    outputs, lses = [], []
    rotate_keys = batch.rotate == "keys"
    for item in batch.buckets:
        if item.bucket.causal:
            k, v = (_pick(packed, item.keys, item.packed) for packed in (keys, values))
        else:
            k, v = batch.cache.read(layer, item.keys, keys.shape[1])
        q = _pick(queries, item.queries, item.packed)
        k = batch.turned(layer, k, item.turn if rotate_keys else None)
        q = batch.turned(layer, q, None if rotate_keys else item.turn)
        mask = batch.mask(item, sliding_window)
        causal = item.bucket.causal and (mask is None or mask.shape[-2] == 1)
        q, k, v = (states.transpose(1, 2) for states in (q, k, v))
        if alibi is not None:
            mask, offset = batch.with_distance(item, mask, alibi)
        output, lse = attend(q, k, v, scale, mask=mask, causal=causal, softcap=softcap)
        if alibi is not None:
            lse = lse + offset
        outputs.append(_rows(output.transpose(1, 2), item.rows))
        lses.append(_rows(lse.transpose(1, 2), item.rows))
    return _merge(batch, outputs, lses).unsqueeze(0), None


def _merge(batch: PackedBatch, outputs: list[Tensor], lses: list[Tensor]) -> Tensor:
    """Partial results of each token, weighted by their share of the softmax's denominator."""
    output = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
    if batch.in_order:
        return output
    tokens = len(batch.positions)
    if not batch.merge:
        return torch.empty_like(output).index_copy_(0, batch.tokens, output)
    lse = torch.cat(lses)
    largest = lse.new_full((tokens, lse.shape[1]), -torch.inf)
    largest.scatter_reduce_(0, batch.tokens[:, None].expand_as(lse), lse, "amax")
    weight = torch.exp(lse - largest.index_select(0, batch.tokens))
    total = torch.zeros_like(largest).index_add_(0, batch.tokens, weight)
    weight = weight / total.index_select(0, batch.tokens)
    merged = weight.new_zeros(tokens, *output.shape[1:])  # float32, whatever the network's type
    merged.index_add_(0, batch.tokens, output * weight.unsqueeze(-1))
    return merged.to(output.dtype)


def _pick(packed: Tensor, index: Tensor, whole: bool) -> Tensor:
    """Rows of (tokens, heads, head_dim) by (jobs, n) indices, as (jobs, n, heads, head_dim)."""
    picked = packed if whole else packed.index_select(0, index.reshape(-1))
    return picked.reshape(*index.shape, *packed.shape[1:])


def _rows(padded: Tensor, rows: Tensor | None) -> Tensor:
    """Real rows of a padded (jobs, q, ...) result, flattened."""
    flat = padded.flatten(0, 1)
    return flat if rows is None else flat.index_select(0, rows)


def _real(bucket: Bucket) -> Any:
    return np.arange(bucket.queries.shape[1])[None, :] < bucket.query_counts[:, None]


def _no_mask(*args: Any, **kwargs: Any) -> None:
    """The batch says what attends to what; a network need not build a mask."""


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, _no_mask)
