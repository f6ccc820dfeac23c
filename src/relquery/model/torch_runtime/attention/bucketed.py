"""Attention by torch's operators, for devices and types without kernels of ours.

A batch's jobs in buckets: each is one call of an operator, whose results are merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from relquery.arrays import Int64s
from relquery.engine.executor import Chunk
from relquery.errors import ModelError
from relquery.model.torch_runtime.attention.buckets import Bucket, plan_buckets
from relquery.model.torch_runtime.attention.operators import Part, attend
from relquery.model.torch_runtime.cache.device import KVCache
from relquery.model.torch_runtime.cache.rotary import PositionScheme, Rotate


@dataclass(slots=True)
class DeviceBucket:
    """A bucket as tensors.

    rows: the real rows of its padded output, None for all. start: the first of its queries if they
    are contiguous, so that a view is enough; else None.
    tokens: (real rows,) the token of each in the packed self. merging: (real rows,) its number
    among the tokens whose partial results are merged; None if only this bucket has results.
    turn: by how many positions to rotate queries, (jobs, q), or keys, (jobs, k); None for none.
    """

    bucket: Bucket
    queries: Tensor
    keys: Tensor
    rows: Tensor | None
    start: int | None
    tokens: Tensor
    merging: Tensor | None
    turn: Tensor | None
    masks: dict[int | None, Tensor | None] = field(default_factory=dict)


class BucketedAttention:
    """Attention of one step; for the arguments see PackedBatch.

    merged: tokens with several partial results. in_pairs: whether each of these has two, from two
    buckets that contain them all in order.
    """

    def __init__(
        self,
        chunks: Sequence[Chunk],
        cache: KVCache,
        scratch: KVCache | None,
        share: bool,
        device: torch.device,
        scheme: PositionScheme | None,
        rotate: Rotate,
    ) -> None:
        self.cache, self.scratch, self.device = cache, scratch, device
        self.scheme, self.rotate = scheme, rotate
        self.tokens = sum(len(chunk.tokens) for chunk in chunks)
        buckets = plan_buckets(chunks, share, by_shift=rotate == "keys")
        partials = np.zeros(self.tokens, dtype=np.int64)
        for bucket in buckets:
            np.add.at(partials, bucket.queries[_real(bucket)], 1)
        # All tokens of a bucket are merged if one is.
        for bucket in buckets:
            own = bucket.queries[_real(bucket)]
            if (partials[own] > 1).any():
                partials[own] = np.maximum(partials[own], 2)
        merged = np.flatnonzero(partials > 1)
        self.merged = self._tensor(merged)
        self.buckets = [self._to_device(bucket, merged) for bucket in buckets]
        merging = [item.merging for item in self.buckets if item.merging is not None]
        self.in_pairs = len(merging) == 2 and all(len(each) == len(merged) for each in merging)
        self.in_pairs = self.in_pairs and all(_is_run(each.cpu().numpy()) for each in merging)

    def attend(
        self,
        layer: int,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        *,
        scale: float,
        window: int | None,
        softcap: float | None,
        slopes: Tensor | None,
    ) -> Tensor:
        """Outputs (tokens, heads, value_dim).

        queries: (tokens, heads, head_dim); keys, values: (tokens, kv_heads, head_dim) of the step.
        """
        outputs = queries.new_empty(self.tokens, queries.shape[1], values.shape[-1])
        partials: list[tuple[Tensor, Tensor, Tensor]] = []
        for item in self.buckets:
            q = _pick(queries, item.queries, item.start)
            q = self.turned(layer, q, None if self.rotate == "keys" else item.turn)
            mask, offset = self.mask(item, window), None
            if slopes is not None:
                mask, offset = self.with_distance(item, mask, slopes)
            causal = item.bucket.causal and (mask is None or mask.shape[-2] == 1)
            parts = self._parts(layer, item, keys, values)
            output, lse = attend(
                q.transpose(1, 2), parts, scale, mask=mask, causal=causal, softcap=softcap
            )
            rows = _rows(output.transpose(1, 2), item.rows)
            if item.merging is not None:
                lse = lse if offset is None else lse + offset
                partials.append((item.merging, rows, _rows(lse.transpose(1, 2), item.rows)))
            elif len(rows) == self.tokens and item.start == 0:
                return rows
            elif item.start is not None:
                outputs[item.start : item.start + len(rows)] = rows
            else:
                outputs.index_copy_(0, item.tokens, rows)
        if partials:
            merged = _merge_pair(partials) if self.in_pairs else _merge(partials, len(self.merged))
            if len(merged) == self.tokens:
                return merged
            outputs.index_copy_(0, self.merged, merged)
        return outputs

    def store(self, bucket: Bucket) -> KVCache:
        """Where the keys of a bucket are."""
        store = self.scratch if bucket.scratch else self.cache
        assert store is not None
        return store

    def turned(self, layer: int, states: Tensor, turn: Tensor | None) -> Tensor:
        """States (jobs, n, heads, head_dim), rotated to where they are used."""
        if turn is None:
            return states
        assert self.scheme is not None
        rotary = self.scheme.layers[layer]
        return states if rotary is None else rotary.rotate(states, turn)

    def mask(self, item: DeviceBucket, window: int | None) -> Tensor | None:
        """Additive mask of a bucket under a sliding window; None if nothing is hidden."""
        if window not in item.masks:
            visible = self._visible(item.bucket, window)
            item.masks[window] = None
            if visible is not None:
                mask = torch.zeros(visible.shape, device=self.device)
                mask.masked_fill_(~self._tensor(visible), -torch.inf)
                item.masks[window] = mask.unsqueeze(1)
        return item.masks[window]

    def with_distance(
        self, item: DeviceBucket, mask: Tensor | None, slopes: Tensor
    ) -> tuple[Tensor, Tensor]:
        """ALiBi: (mask (jobs, heads, q or 1, k), correction of log-sum-exps (jobs, heads, q)).

        A score falls by slope x (position of the query - position of the key). The mask counts
        from the last key of the job, so that all queries share one; the rest is the same for all
        keys of a query, and matters only where partial results are merged.
        """
        positions = self._tensor(item.bucket.positions)
        last = positions.amax(-1)
        falls = (positions - last[:, None])[:, None] * slopes[None, :, None]
        bias = falls[:, :, None].float()
        at = self._tensor(item.bucket.at)
        offset = (last[:, None] - at)[:, None] * slopes[None, :, None]
        return bias if mask is None else mask + bias, offset.float()

    def _visible(self, bucket: Bucket, window: int | None) -> Any:
        """(jobs, q or 1, k) booleans, or None if everything is visible apart from causality."""
        width = bucket.positions.shape[1]
        columns = np.arange(width)
        # Of jobs that are read in place, each is cut to its own keys.
        counts = width if bucket.in_place else bucket.key_counts[:, None, None]
        within = columns[None, None, :] < counts
        if window is not None and int(bucket.at.max() - bucket.positions.min()) >= window:
            near = bucket.at[:, :, None] - bucket.positions[:, None, :] < window
            near |= ~_real(bucket)[:, :, None]  # a padded query may see anything
            if bucket.causal:
                near &= np.tri(width, dtype=bool)[None]
            if not near.all():
                return within & near
        return None if bucket.causal or within.all() else within

    def _parts(self, layer: int, item: DeviceBucket, keys: Tensor, values: Tensor) -> list[Part]:
        """Keys and values of a bucket's jobs: together, or per job if the cache is read in place.

        keys, values: (tokens, kv_heads, head_dim) of the packed self.
        """
        bucket = item.bucket
        turn = item.turn if self.rotate == "keys" else None
        if bucket.in_place:
            k, v = (states.transpose(1, 2) for states in self.store(bucket).whole(layer))
            runs = zip(bucket.keys[:, 0].tolist(), bucket.key_counts.tolist(), strict=True)
            parts = [(k.narrow(2, slot, count), v.narrow(2, slot, count)) for slot, count in runs]
            if turn is None:
                return parts
            turned = (
                self.turned(layer, k.transpose(1, 2), turn[job, None, : k.shape[2]])
                for job, (k, _) in enumerate(parts)
            )
            return [(k.transpose(1, 2), v) for k, (_, v) in zip(turned, parts, strict=True)]
        if bucket.causal:
            k, v = (_pick(packed, item.keys, item.start) for packed in (keys, values))
        else:
            k, v = self.store(bucket).read(layer, item.keys)
            k = self.turned(layer, k, turn)
        return [(k.transpose(1, 2), v.transpose(1, 2))]

    def _to_device(self, bucket: Bucket, merged: Int64s) -> DeviceBucket:
        real = _real(bucket).reshape(-1)
        tokens = bucket.queries.reshape(-1)[real]
        merging = np.searchsorted(merged, tokens)
        merges = len(merged) > 0 and np.array_equal(
            merged[merging.clip(max=len(merged) - 1)], tokens
        )
        return DeviceBucket(
            bucket,
            self._tensor(bucket.queries),
            self._tensor(bucket.keys),
            rows=None if real.all() else self._tensor(np.flatnonzero(real)),
            start=int(tokens[0]) if real.all() and _is_run(tokens) else None,
            tokens=self._tensor(tokens),
            merging=self._tensor(np.searchsorted(merged, tokens)) if merges else None,
            turn=self._turn(bucket),
        )

    def _turn(self, bucket: Bucket) -> Tensor | None:
        if not bucket.shifted:
            return None
        if self.scheme is None or not self.scheme.relocatable:
            raise ModelError("This network's keys cannot be used at another position.")
        if self.rotate == "queries":
            return self._tensor(-bucket.shifts)
        # One shift per job: only chunks that see a span at the same position share it.
        return self._tensor(bucket.shifts[:, :1].repeat(bucket.positions.shape[1], axis=1))

    def _tensor(self, array: Any) -> Tensor:
        return torch.from_numpy(array).to(self.device)


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
    merged.index_add_(0, tokens, output.float() * weight.unsqueeze(-1))
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


def _is_run(numbers: Int64s) -> bool:
    return bool((np.diff(numbers) == 1).all())


def _real(bucket: Bucket) -> Any:
    return np.arange(bucket.queries.shape[1])[None, :] < bucket.query_counts[:, None]
