"""Attention on a CPU: the native kernels, over a step's plan."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from relquery._native import Seen, attend
from relquery.arrays import Float32s, Int64s
from relquery.engine.executor import Chunk
from relquery.errors import ModelError
from relquery.model.attention_plan import Planner
from relquery.model.native_runtime import cores
from relquery.model.torch_runtime.cache.device import Stored
from relquery.model.torch_runtime.cache.rotary import PositionScheme, Rotary

KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
"""Types of numbers that the kernels read and write; see native/kernels/arguments.hpp."""


class CpuAttention:
    """Attention of one step. For the arguments see PackedBatch."""

    def __init__(
        self, chunks: Sequence[Chunk], share: bool, scheme: PositionScheme | None, turn_keys: bool
    ) -> None:
        self._chunks, self._share = chunks, share
        self._scheme, self._turn_keys = scheme, turn_keys
        self._seen: dict[tuple[int, int], tuple[Seen, Int64s]] = {}

    def attend(
        self,
        layer: int,
        query: Tensor,
        stored: Stored | None,
        own: Stored | None,
        *,
        scale: float,
        window: int | None = None,
        softcap: float | None = None,
        slopes: Tensor | None = None,
    ) -> Tensor:
        """Outputs (tokens, heads, value width).

        query: (tokens, heads, width). stored, own: where the step's keys and values are, in the
        cache and in the step's own store.
        """
        if query.stride(-1) != 1:
            query = query.contiguous()
        if slopes is not None:
            slopes = slopes.float().contiguous()
        given = stored if stored is not None else own
        assert given is not None
        tokens, heads, width = query.shape
        kv_heads, _, value_width = given[1].shape
        seen, shifts = self._seen_by(heads, kv_heads)
        rotary = self._rotary(layer) if len(shifts) else None
        outputs, size = query.new_empty(tokens, heads, value_width), query.element_size()
        attend(
            seen,
            KINDS[query.dtype],
            (heads, kv_heads, width, value_width),
            (query.data_ptr(), query.stride(0) * size, query.stride(1) * size),
            outputs.data_ptr(),
            _place(stored),
            _place(own),
            scale,
            softcap or 0.0,
            window or 0,
            0 if slopes is None else slopes.data_ptr(),
            None if rotary is None else _turns(rotary, shifts),
            rotary is not None and rotary.interleaved,
            self._turn_keys,
            cores(),
        )
        return outputs

    def _seen_by(self, heads: int, kv_heads: int) -> tuple[Seen, Int64s]:
        """Who sees what, and by how much keys are used later than they were computed."""
        if (heads, kv_heads) not in self._seen:
            planner = Planner(
                share=self._share,
                heads=heads,
                kv_heads=kv_heads,
                threads=cores(),
                has_windows=True,
            )
            plan = planner.plan(self._chunks)
            self._seen[heads, kv_heads] = planner.seen(self._chunks, plan), plan.shift_values
        return self._seen[heads, kv_heads]

    def _rotary(self, layer: int) -> Rotary | None:
        if self._scheme is None or not self._scheme.relocatable:
            raise ModelError("This network's keys cannot be used at another position.")
        return self._scheme.layers[layer]


def _place(stored: Stored | None) -> tuple[int, int, int]:
    """Addresses of keys and values, and how many slots there are."""
    if stored is None:
        return 0, 0, 0
    keys, values = stored
    return keys.data_ptr(), values.data_ptr(), keys.shape[1]


def _turns(rotary: Rotary, shifts: Int64s) -> tuple[Float32s, Float32s]:
    """Cosines and sines of shifts, each (shifts, half) in float32."""
    angles = torch.from_numpy(shifts).double()[:, None] * rotary.frequencies.double()
    return angles.cos().float().numpy(), angles.sin().float().numpy()
