"""What one pass through a Llama-like network computes, operation by operation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from relquery.engine.executor import SCRATCH
from relquery.model.attention.batch import PackedBatch
from relquery.model.attention.function import AttentionOptions
from relquery.model.forward.packed import PackedWeight, padded_rows
from relquery.model.kernels import rows as kernel
from relquery.model.kernels.arguments import KINDS, Arguments, Stored, places
from relquery.model.kernels.threads import Body, threads

ALONE = 1 << 15
"""Numbers that one thread goes through sooner than several begin."""
Tables = tuple[Tensor, Tensor]
"""Cosines and sines (positions, half), as the network's rotary embedding gives them."""


@dataclass(frozen=True, slots=True)
class Norm:
    """weight: (width,) in float32. epsilon: the bits of one."""

    weight: Tensor
    epsilon: int


@dataclass(frozen=True, slots=True)
class Layer:
    """inward: queries, keys and values. outward: of attention. gated: gate and up.

    heads, kv_heads, width: of attention.
    """

    heads: int
    kv_heads: int
    width: int
    first: Norm
    inward: PackedWeight
    query: Norm | None
    key: Norm | None
    outward: PackedWeight
    second: Norm
    gated: PackedWeight
    down: PackedWeight
    options: AttentionOptions


class Run:
    """Computes each operation when it is called.

    The rows of a result may be padded; what the padding holds means nothing.
    """

    def __init__(self, batch: PackedBatch, tables: Tables) -> None:
        self.batch = batch
        self._tables, self._slots, self._positions = tables, batch.slots, batch.positions
        cosines, sines = tables
        self._a = a = Arguments(kernel.ARGUMENTS)
        a[kernel.COSINES], a[kernel.SINES] = cosines.data_ptr(), sines.data_ptr()
        a[kernel.HALF] = cosines.shape[1]
        a[kernel.SLOTS] = batch.slots.ctypes.data
        a[kernel.POSITIONS] = batch.positions.ctypes.data
        a[kernel.SCRATCH_FROM] = SCRATCH

    def normalize(self, norm: Norm, hidden: Tensor, added: Tensor | None) -> Tensor:
        """Normalized rows (rows, width) of the hidden states, to which `added` is added first."""
        a, result = self._a, self._new("normalized", hidden, *hidden.shape)
        a[kernel.ADDED] = 0 if added is None else added.data_ptr()
        a[kernel.WEIGHT], a[kernel.EPSILON] = norm.weight.data_ptr(), norm.epsilon
        self._go_through(kernel.NORMALIZE, hidden, result, hidden.shape[1])
        return result

    def multiply(self, weight: PackedWeight, rows: Tensor) -> Tensor:
        """Products (rows, outputs)."""
        return weight(rows)

    def rotate(self, number: int, layer: Layer, projected: Tensor) -> Tensor:
        """Rotated queries (rows, heads, width); stores the rotated keys, and the values."""
        a, batch = self._a, self.batch
        heads, kv_heads, width = layer.heads, layer.kv_heads, layer.width
        rows = projected.shape[0]
        by_head = projected.view(rows, heads + 2 * kv_heads, width)[: batch.tokens]
        keys, values = by_head[:, heads : heads + kv_heads], by_head[:, heads + kv_heads :]
        stored, own = self._stores(number, keys, values)
        a[kernel.KEYS], a[kernel.VALUES], a[kernel.STORE] = places(stored)
        a[kernel.OWN_KEYS], a[kernel.OWN_VALUES], a[kernel.OWN_STORE] = places(own)
        a[kernel.HEADS], a[kernel.KV_HEADS] = heads, kv_heads
        a[kernel.QUERY_WEIGHT] = a[kernel.KEY_WEIGHT] = 0
        if layer.query is not None and layer.key is not None:
            a[kernel.QUERY_WEIGHT] = layer.query.weight.data_ptr()
            a[kernel.KEY_WEIGHT] = layer.key.weight.data_ptr()
            a[kernel.EPSILON] = layer.query.epsilon
        queries = self._new("queries", projected, rows, heads, width)
        self._go_through(kernel.ROTATE, by_head, queries, projected.shape[1])
        batch.end_write(number, keys, values)
        return queries

    def choose(
        self, hidden: Tensor, queries: Tensor, wanted: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """The hidden states and queries of the wanted tokens."""
        chosen = torch.zeros(padded_rows(len(wanted)), dtype=torch.long)
        chosen[: len(wanted)] = torch.tensor(wanted)
        return hidden[chosen], queries[chosen]

    def attend(
        self, number: int, layer: Layer, queries: Tensor, chosen: Sequence[int] | None = None
    ) -> Tensor:
        """Outputs (rows, heads * width) of a layer's attention.

        chosen: the tokens whose queries are given; None for all.
        """
        outputs = torch.empty_like(queries)
        tokens = self.batch.tokens if chosen is None else len(chosen)
        outputs[tokens:] = 0
        options = layer.options
        self.batch.attend(
            number,
            queries[:tokens],
            scale=options.scale,
            window=options.window,
            softcap=options.softcap,
            out=outputs,
            rows=chosen,
        )
        return outputs.flatten(1)

    def gate(self, weight: PackedWeight, rows: Tensor, activation: int) -> Tensor:
        """activation(gate) * up (rows, outputs / 2) of products with gate and up."""
        if weight.gates(len(rows)):
            return weight.gated(rows, activation)
        products = self.multiply(weight, rows)
        width = weight.outputs // 2
        self._a[kernel.ACTIVATION] = activation
        result = self._new("gated", products, len(rows), width)
        self._go_through(kernel.ACTIVATE, products, result, width)
        return result

    def _stores(self, number: int, keys: Tensor, values: Tensor) -> tuple[Stored | None, ...]:
        """Where a layer's keys and values of these shapes are: in the cache, and of the step."""
        return self.batch.prepare(number, keys, values)

    def _new(self, name: str, like: Tensor, *shape: int) -> Tensor:
        """A place for a result. name: what it holds."""
        return like.new_empty(*shape)

    def _go_through(self, body: Body, source: Tensor, result: Tensor, width: int) -> None:
        """Run a pass over rows of the source. width: of a row, for the threads' memory."""
        workers = threads() if source.numel() >= ALONE else 1
        work = torch.empty(workers * kernel.work_bytes(width), dtype=torch.uint8)
        self._tell(source, result, width, work)
        body.run(self._a, workers)

    def _tell(self, source: Tensor, result: Tensor, width: int, work: Tensor) -> None:
        a = self._a
        a[kernel.KIND], a[kernel.ROWS] = KINDS[source.dtype], source.shape[0]
        a[kernel.SOURCE], a[kernel.RESULT] = source.data_ptr(), result.data_ptr()
        a[kernel.WIDTH], a[kernel.WORK] = width, work.data_ptr()
        a[kernel.NEXT] = a[kernel.TICKET] = 0
