"""Attention on a GPU: the Triton kernels, over a step's plan."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from relquery.engine.executor import SCRATCH, Chunk
from relquery.errors import ModelError
from relquery.model.attention_plan import AttentionPlan, plan_step
from relquery.model.torch_runtime.cache import PositionScheme, RotaryEmbedding, Stored

BLOCK = 64
"""Keys that a program reads at a time."""
LEAST = 16
"""Rows, columns and keys that a product of matrices has at least."""
LISTS = (
    *("tasks", "visits", "tokens", "at", "shifts", "targets", "slots", "positions"),
    *("shift_values", "merged"),
)
"""Arrays of a plan that the kernels read, in the order of their arguments; `merged` in its own."""
ALIGNED = 2
"""Numbers in 16 bytes. Triton compiles a kernel anew for each combination of arguments whose
addresses are multiples of that, which takes seconds: so all of them are, whatever their sizes."""


@cache
def has_triton() -> bool:
    """Whether Triton is there, as it is with torch for CUDA on Linux."""
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True


class GpuAttention:
    """Attention of one step. For the arguments see PackedBatch."""

    @property
    def _kind(self) -> type[_OnDevice]:
        """Of places for plans."""
        return _OnDevice

    def __init__(self, chunks: Sequence[Chunk], share: bool, scheme: PositionScheme | None) -> None:
        self._chunks, self._share, self._scheme = chunks, share, scheme
        self._prepared: dict[tuple[int, int], _OnDevice] = {}

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
        from relquery.model.torch_runtime.triton_kernels import (
            attend_tasks,
            merge_tokens,
        )

        tokens, heads, width = query.shape
        given = stored if stored is not None else own
        assert given is not None
        kv_heads, _, value_width = given[1].shape
        plan = self._prepare(heads, kv_heads, query.device)
        if query.stride(-1) != 1:
            query = query.contiguous()
        output = query.new_empty(tokens, heads, value_width)
        deep = _padded(value_width)
        partials = query.new_empty(plan.places * heads, 2 + deep, dtype=torch.float32)
        rotary = self._rotary(layer) if plan.shifted else None
        cosines, sines = (partials, partials) if rotary is None else plan.tables(rotary)
        keys, values = stored or (query, query)
        own_keys, own_values = own or (query, query)
        of_plan = plan.lists
        attend_tasks[(plan.tasks, kv_heads)](
            query,
            query.stride(0),
            query.stride(1),
            output,
            partials,
            keys,
            values,
            keys.shape[1],
            own_keys,
            own_values,
            own_keys.shape[1],
            SCRATCH,
            *(of_plan[name] for name in LISTS[:-1]),
            cosines,
            sines,
            partials if slopes is None else slopes.float().contiguous(),
            scale,
            softcap or 0.0,
            window or 0,
            heads=heads,
            kv_heads=kv_heads,
            width=width,
            value_width=value_width,
            wide=_padded(width),
            value_wide=deep,
            rows=_padded(plan.most * heads // kv_heads),
            block=BLOCK,
            half=0 if rotary is None else len(rotary.frequencies),
            interleaved=rotary is not None and rotary.interleaved,
            has_store=stored is not None,
            has_own=own is not None,
            has_cap=softcap is not None,
            has_window=window is not None,
            has_slopes=slopes is not None,
        )
        if plan.merged:
            merge_tokens[(plan.merged, heads)](
                output,
                partials,
                of_plan["merged"],
                heads=heads,
                value_width=value_width,
                value_wide=deep,
            )
        return output

    def _prepare(self, heads: int, kv_heads: int, device: torch.device) -> _OnDevice:
        shape = heads, kv_heads
        if shape not in self._prepared:
            self._prepared[shape] = self._kind(self._plan(self._chunks, shape, device), device)
        return self._prepared[shape]

    def _plan(
        self, chunks: Sequence[Chunk], shape: tuple[int, int], device: torch.device
    ) -> AttentionPlan:
        return plan_step(
            chunks,
            share=self._share,
            heads=shape[0],
            kv_heads=shape[1],
            threads=_processors(device),
        )

    def _rotary(self, layer: int) -> RotaryEmbedding | None:
        if self._scheme is None or not self._scheme.relocatable:
            raise ModelError("This network's keys cannot be used at another position.")
        return self._scheme.layers[layer]


class HeldAttention(GpuAttention):
    """Attention of steps that follow one another, whose plans are in one place of the device, as
    CUDA graphs need it."""

    @property
    def _kind(self) -> type[_OnDevice]:
        return _Held

    def follow(self, chunks: Sequence[Chunk]) -> bool:
        """Attend in other chunks from now on; False if their plan is too large for the place."""
        for shape, held in self._prepared.items():
            assert isinstance(held, _Held)
            if not held.put(self._plan(chunks, shape, held.device)):
                return False
        return True


class _OnDevice:
    """A plan whose arrays are on a device, brought there in one copy.

    most: tokens of a task at most. shifted: whether keys are used at other positions.
    """

    def __init__(self, plan: AttentionPlan, device: torch.device) -> None:
        self.tasks, self.merged, self.places = len(plan.tasks), len(plan.merged), plan.places
        self.most = _most(plan)
        self.shifted = len(plan.shift_values) > 0
        arrays = [getattr(plan, name).reshape(-1) for name in LISTS]
        sizes = [-(-each.size // ALIGNED) * ALIGNED for each in arrays]
        whole = np.zeros(sum(sizes), dtype=np.int64)
        for place, each in zip(np.split(whole, np.cumsum(sizes)[:-1]), arrays, strict=True):
            place[: each.size] = each
        here = torch.from_numpy(whole)
        if device.type == "cuda":
            here = here.pin_memory()
        there = here.to(device, non_blocking=True)
        self.lists = dict(zip(LISTS, torch.split(there, sizes), strict=True))
        self._tables: dict[RotaryEmbedding, tuple[Tensor, Tensor]] = {}

    def tables(self, rotary: RotaryEmbedding) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the shifts, each (shift numbers, half) in float32."""
        if rotary not in self._tables:
            self._tables[rotary] = self._turns(rotary)
        return self._tables[rotary]

    def _turns(self, rotary: RotaryEmbedding) -> tuple[Tensor, Tensor]:
        angles = self.lists["shift_values"].double()[:, None] * rotary.frequencies.double()
        return angles.cos().float(), angles.sin().float()


class _Held(_OnDevice):
    """A place for plans up to twice as large as the first one.

    Tasks and merged tokens beyond those of a plan are zeros, which make the kernels do nothing.
    Where the first plan uses keys at other positions, those after it may or may not.
    """

    def __init__(self, plan: AttentionPlan, device: torch.device) -> None:
        self.device = device
        sizes = [_doubled(getattr(plan, name).size) for name in LISTS]
        self.tasks, self.merged = sizes[0] // 4, sizes[-1] // 3
        self.places, self.most = _doubled(plan.places), _most(plan)
        self.shifted = len(plan.shift_values) > 0
        here = torch.zeros(sum(sizes), dtype=torch.long, pin_memory=device.type == "cuda")
        self._here, self._there = here, torch.zeros(sum(sizes), dtype=torch.long, device=device)
        self._parts = dict(zip(LISTS, torch.split(here, sizes), strict=True))
        self.lists = dict(zip(LISTS, torch.split(self._there, sizes), strict=True))
        self._tables = {}
        self.put(plan)

    def put(self, plan: AttentionPlan) -> bool:
        """Replace the plan; False if the new one is too large. The last step must have ended."""
        arrays = {name: torch.from_numpy(getattr(plan, name)).reshape(-1) for name in LISTS}
        fits = all(len(arrays[name]) <= len(part) for name, part in self._parts.items())
        if not fits or plan.places > self.places or _most(plan) > self.most:
            return False
        if len(plan.shift_values) and not self.shifted:
            return False
        before = self._parts["shift_values"].clone()
        for name, part in self._parts.items():
            part[: len(arrays[name])] = arrays[name]
            part[len(arrays[name]) :] = 0
        self._there.copy_(self._here, non_blocking=True)
        if not torch.equal(before, self._parts["shift_values"]):  # seldom, from step to step
            for rotary, tables in self._tables.items():
                for table, turns in zip(tables, self._turns(rotary), strict=True):
                    table.copy_(turns)
        return True


def _most(plan: AttentionPlan) -> int:
    """Tokens of a task at most."""
    return int((plan.tasks[:, 1] - plan.tasks[:, 0]).max())


def _doubled(count: int) -> int:
    return 2 * max(count, 12)  # a multiple of what one task and one merged token take


def _padded(width: int) -> int:
    """The next power of two that a product of matrices can have."""
    return max(LEAST, 1 << (width - 1).bit_length())


@cache
def _processors(device: torch.device) -> int:
    """Programs that a device runs at a time, about."""
    if device.type != "cuda":
        return 1
    properties: Any = torch.cuda.get_device_properties(device)
    return int(properties.multi_processor_count)
