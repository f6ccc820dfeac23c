"""Attention on a CPU: the compiled kernels, over a step's plan."""

from __future__ import annotations

from collections.abc import Sequence
from math import frexp

import torch
from torch import Tensor

from relquery.arrays import Int64s
from relquery.engine.executor import SCRATCH, Chunk
from relquery.errors import ModelError
from relquery.model.attention.plan import Plan, plan_step
from relquery.model.cache.rotary import PositionScheme, Rotary
from relquery.model.kernels.arguments import KINDS, Arguments, Stored, bits, padded, places
from relquery.model.kernels.attention import arguments as kernel
from relquery.model.kernels.attention.arguments import ATTEND, MERGE
from relquery.model.kernels.threads import threads

ALONE = 1 << 16
"""Products of numbers that one thread computes sooner than several begin."""
ROOM = 16
"""Steps for which a plan of decode steps grows. Tasks were cut for the first of them."""


class CompiledAttention:
    """Attention of one step. For the arguments see PackedBatch."""

    def __init__(
        self, chunks: Sequence[Chunk], share: bool, scheme: PositionScheme | None, turn_keys: bool
    ) -> None:
        self._chunks: Sequence[Chunk] = chunks
        self._share = share
        self._room = ROOM if all(chunk.run for chunk in chunks) else 0
        self._scheme, self._turn_keys = scheme, turn_keys
        self._prepared: dict[tuple[int, ...], Prepared] = {}

    def follow(self, slots: Int64s) -> bool:
        """Become the attention of a step whose chunks follow this one's and write to these slots.

        False if a new one is needed; this one is of no use then.
        """
        self._chunks = ()
        grown = [prepared.plan.grow(slots) for prepared in self._prepared.values()]
        return bool(grown) and all(grown)

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
        out: Tensor | None = None,
    ) -> Tensor:
        """Outputs (tokens, heads, value width), in the first rows of `out` if that is given.

        query: (tokens, heads, width), numbers of a head next to each other. stored, own: where the
        step's keys and values are, in the cache and in the step's own store.
        """
        if query.stride(-1) != 1:
            query = query.contiguous()
        if slopes is not None:
            slopes = slopes.float().contiguous()
        prepared = self.prepare(query.shape[1:], query.dtype, stored, own)
        a, workers = prepared.arguments, prepared.workers
        if out is None:
            out = query.new_empty(*query.shape[:2], a[kernel.VALUE_WIDTH])
        self.tell(
            layer,
            prepared,
            query,
            out,
            stored,
            own,
            scale=scale,
            window=window,
            softcap=softcap,
            slopes=slopes,
        )
        work = torch.empty(workers * a[kernel.WORK_BYTES], dtype=torch.uint8)
        a[kernel.WORK] = work.data_ptr()
        a[kernel.NEXT] = a[kernel.TICKET] = 0
        ATTEND.run(a, workers)
        if len(prepared.plan.merged):
            a[kernel.NEXT] = a[kernel.TICKET] = 0
            MERGE.run(a, workers)
        return out

    def prepare(
        self,
        query: tuple[int, ...],
        dtype: torch.dtype,
        stored: Stored | None,
        own: Stored | None,
    ) -> Prepared:
        """The step's plan, for queries (heads, width) of a token, and keys and values as given."""
        given = stored if stored is not None else own
        assert given is not None
        heads, width = query
        kv_heads, _, value_width = given[1].shape
        shape = heads, kv_heads, width, value_width
        if shape not in self._prepared:
            self._prepared[shape] = self._prepare(*shape, KINDS[dtype])
        return self._prepared[shape]

    def tell(
        self,
        layer: int,
        prepared: Prepared,
        query: Tensor,
        out: Tensor,
        stored: Stored | None,
        own: Stored | None,
        *,
        scale: float,
        window: int | None,
        softcap: float | None,
        slopes: Tensor | None = None,
    ) -> None:
        """Tell the kernel all but its work memory. slopes: (heads,) in float32, contiguous."""
        a, size = prepared.arguments, query.element_size()
        a[kernel.QUERIES] = query.data_ptr()
        a[kernel.QUERY_TOKEN], a[kernel.QUERY_HEAD] = query.stride(0) * size, query.stride(1) * size
        a[kernel.OUTPUTS] = out.data_ptr()
        a[kernel.KEYS], a[kernel.VALUES], a[kernel.STORE] = places(stored)
        a[kernel.OWN_KEYS], a[kernel.OWN_VALUES], a[kernel.OWN_STORE] = places(own)
        fraction, exponent = frexp(scale)
        a[kernel.SCALE], a[kernel.REST] = bits(2.0 ** (exponent - 1)), bits(2 * fraction)
        a[kernel.CAP] = bits(softcap or 0.0)
        a[kernel.WINDOW] = window or 0
        a[kernel.SLOPES] = 0 if slopes is None else slopes.data_ptr()
        self.tell_rotation(layer, prepared)

    def tell_rotation(self, layer: int, prepared: Prepared) -> None:
        """Tell the kernel how spans are rotated to where they are used."""
        a, rotary = prepared.arguments, None
        if len(prepared.plan.shift_values):
            rotary = self._rotary(layer)
        a[kernel.COSINES] = 0
        if rotary is not None:
            cosines, sines = prepared.tables(rotary)
            a[kernel.COSINES], a[kernel.SINES] = cosines.data_ptr(), sines.data_ptr()
            a[kernel.HALF] = len(rotary.frequencies)
            a[kernel.INTERLEAVED] = rotary.interleaved

    @property
    def rotates_alike(self) -> bool:
        """Whether spans are rotated in the same way in all layers."""
        return self._scheme is not None and len(set(self._scheme.layers)) == 1

    def _prepare(
        self, heads: int, kv_heads: int, width: int, value_width: int, kind: int
    ) -> Prepared:
        assert self._chunks, "the step that others follow has all layers' shapes"
        plan = plan_step(
            self._chunks,
            share=self._share,
            by_shift=self._turn_keys,
            heads=heads,
            kv_heads=kv_heads,
            threads=threads(),
            room=self._room,
        )
        products = plan.pairs * heads * (width + value_width)
        prepared = Prepared(plan, threads() if products > ALONE else 1)
        a = prepared.arguments
        a[kernel.KIND], a[kernel.HEADS], a[kernel.KV_HEADS] = kind, heads, kv_heads
        a[kernel.WIDTH], a[kernel.VALUE_WIDTH] = width, value_width
        a[kernel.TASKS], a[kernel.TASK_COUNT] = plan.tasks.ctypes.data, len(plan.tasks)
        a[kernel.VISITS] = plan.visits.ctypes.data
        a[kernel.TOKENS], a[kernel.POSITIONS] = plan.tokens.ctypes.data, plan.at.ctypes.data
        a[kernel.SHIFTS], a[kernel.TARGETS] = plan.shifts.ctypes.data, plan.targets.ctypes.data
        a[kernel.SLOTS], a[kernel.KEY_POSITIONS] = (
            plan.slots.ctypes.data,
            plan.positions.ctypes.data,
        )
        a[kernel.SCRATCH_FROM] = SCRATCH
        a[kernel.SHIFT_VALUES] = plan.shift_values.ctypes.data
        a[kernel.TURN_KEYS] = self._turn_keys
        a[kernel.PAIRED] = a[kernel.TILED] = True
        a[kernel.MERGED], a[kernel.MERGED_COUNT] = plan.merged.ctypes.data, len(plan.merged)
        a[kernel.WORK_BYTES] = kernel.work_bytes(heads // kv_heads, width, value_width)
        if plan.places:
            length = 2 + padded(value_width)
            prepared.partials = torch.empty(plan.places * heads * length)
            a[kernel.PARTIALS] = prepared.partials.data_ptr()
        return prepared

    def _rotary(self, layer: int) -> Rotary | None:
        if self._scheme is None or not self._scheme.relocatable:
            raise ModelError("This network's keys cannot be used at another position.")
        return self._scheme.layers[layer]


class Prepared:
    """A plan, the kernel's arguments with its addresses, and what they refer to."""

    def __init__(self, plan: Plan, workers: int) -> None:
        self.plan, self.workers = plan, workers
        self.arguments = Arguments(kernel.ARGUMENTS)
        self.partials: Tensor | None = None
        self._tables: dict[Rotary, tuple[Tensor, Tensor]] = {}

    def tables(self, rotary: Rotary) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the shifts, each (shift numbers, half) in float32."""
        if rotary not in self._tables:
            angles = torch.from_numpy(self.plan.shift_values).double()[:, None]
            angles = angles * rotary.frequencies.double()
            self._tables[rotary] = angles.cos().float(), angles.sin().float()
        return self._tables[rotary]
