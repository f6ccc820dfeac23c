"""The executor of networks on a CPU: chunks of many requests as one step of the native runtime."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from relquery._native import Adapted, Network, Slice, Store
from relquery.arrays import Float32s, Int64s, Slots
from relquery.engine.executor import Chunk, Drawn, drawn_by_chunk
from relquery.model.attention_plan import (
    AttentionPlan,
    Planner,
    chunks_at,
    cut,
    own_slots,
    positions_of,
    wanted_of,
)
from relquery.model.formats.safetensors import NAMES, narrow, widen
from relquery.model.networks.decoder import Decoder
from relquery.model.sampler import Logits, follow_draws
from relquery.model.store import LayerStates, StateStore

INT8 = 3
"""The kind of keys and values in 8 bits."""
LEAST_POSITIONS = 1_024
"""Positions whose angles are computed at first."""
ROOM = 64
"""Steps by which a plan of single tokens can grow."""
_NONE = np.empty(0, dtype=np.int64)
NOT_ADAPTED = Adapted(_NONE, _NONE)
"""Rows of which no adapter changes any."""


def cores() -> int:
    """Cores that this process may use, or as many as OMP_NUM_THREADS says."""
    known = hasattr(os, "sched_getaffinity")
    most = len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return min(most, int(wanted)) if wanted.isdigit() and int(wanted) else most


class NativeExecutor:
    """An executor of a decoder's forward pass.

    slots: capacity of the KV cache in tokens. share, slice_tokens: see EngineConfig.
    adapters: how many the network has. cached:
    the kind of keys and values, that of the network or INT8. All stores have it: an answer is the
    same wherever its states come from, up to rounding. check: called around each step; raises
    where the network's numbers are no longer those that it was opened with.
    """

    def __init__(
        self,
        network: Network,
        decoder: Decoder,
        kind: int,
        slots: int,
        *,
        share: bool = True,
        slice_tokens: int = 2_048,
        threads: int | None = None,
        adapters: int = 0,
        cached: int | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._adapters, self._check = adapters, check
        self._net, self._decoder, self._kind = network, decoder, kind
        self._cached = kind if cached is None else cached
        self._slice_tokens = slice_tokens
        self._threads = threads or cores()
        self._rotations = decoder.rotations
        self._planner = Planner(
            share=share,
            heads=decoder.heads,
            kv_heads=decoder.kv_heads,
            threads=self._threads,
            has_windows=any(each.window for each in decoder.layers),
            turns=lambda shifts: [each.turns(shifts) for each in self._rotations],
        )
        self._store = Store(decoder.shapes, slots, self._cached)
        self._none = Store(decoder.shapes, 0, self._cached)
        self._last: _Last | None = None
        self._rows = 0  # of the latest step's first logits

    def execute(self, chunks: Sequence[Chunk]) -> list[Drawn | None]:
        """Compute all chunks as one batch, in slices if it is long; logits only where wanted."""
        last, self._last = self._last, None
        if last is not None and last.follow(chunks):
            self._run([last.slice], self._none)
            self._last = last
            return self._drawn(chunks)
        own = own_slots(chunks)
        scratch = self._scratch(own) if own else self._none
        slices = cut(chunks, self._slice_tokens)
        can_be_followed = len(slices) == 1 and not own and all(chunk.run for chunk in chunks)
        made = [self._slice(each, ROOM if can_be_followed else 0) for each in slices]
        self._run(made, scratch)
        if can_be_followed:
            self._last = _Last(chunks, made[0])
        return self._drawn(chunks)

    def follow(self, tokens: Sequence[int], slots: Slots) -> list[Drawn | None] | None:
        """See Executor."""
        last, self._last = self._last, None
        if last is None or not last.advance(np.array(tokens), slots):
            return None
        self._run([last.slice], self._none)
        self._last = last
        return self._drawn(last.chunks)

    def bytes_of(self, chunks: Sequence[Chunk]) -> int:
        """Bytes that a step with these chunks takes beside weights and cache; nothing is computed.

        Arrays of plans and everything that the network computes on are counted.
        """
        slices = [self._slice(each) for each in cut(chunks, self._slice_tokens)]
        own = self._scratch(own_slots(chunks))
        of_plans = sum(each.plan.bytes for each in slices)
        native = [each.native for each in slices]
        return of_plans + self._net.step_bytes(native, self._store, own, self._threads)

    @property
    def slot_bytes(self) -> int:
        """Bytes of one token in the cache."""
        return self._store.slot_bytes

    def store(self, memory: int, folder: Path | None, disk: int) -> StateStore:
        """A store of states of this executor's cache; see StateStore."""
        return StateStore(
            _CachedStates(self._store, self._decoder, self._cached), memory, folder, disk
        )

    def reserve(self) -> None:
        """Allocate memory for the whole cache now."""
        self._store.reserve()

    def close(self) -> None:
        """Give back the memory of the caches."""
        self._last = None
        self._net.close_stores([self._store])

    def _scratch(self, slots: int) -> Store:
        """A step's own store."""
        return Store(self._decoder.shapes, slots, self._cached, keeps=False)

    def _run(self, slices: Sequence[_StepSlice], scratch: Store) -> None:
        native = [each.native for each in slices]
        self._check()
        self._rows = self._net.run(native, self._store, scratch, self._threads)

    def _slice(self, chunks: Sequence[Chunk], room: int = 0) -> _StepSlice:
        """A slice of a step. room: steps by which its plan can grow."""
        tokens, slots = (
            np.concatenate(each).astype(np.int64)
            for each in zip(*((chunk.tokens, chunk.writes) for chunk in chunks), strict=True)
        )
        positions, wanted = positions_of(chunks), np.array(wanted_of(chunks), dtype=np.int64)
        self._reach(int(positions.max()))
        plan, seen_by_wanted = self._planner.plan(chunks, room), None
        if 0 < len(wanted) < len(tokens):
            seen_by_wanted = self._planner.seen(chunks_at(chunks, wanted.tolist()))
        made = Slice(
            tokens,
            positions,
            slots,
            self._planner.seen(chunks, plan),
            wanted,
            seen_by_wanted,
            *self._adapted(chunks, wanted),
        )
        return _StepSlice(tokens, positions, slots, plan, made)

    def _adapted(self, chunks: Sequence[Chunk], wanted: Int64s) -> tuple[Adapted, Adapted]:
        """Rows of a slice that adapters change, and those of its wanted tokens."""
        if not self._adapters or not any(chunk.adapter for chunk in chunks):
            return NOT_ADAPTED, NOT_ADAPTED
        lengths = [len(chunk.tokens) for chunk in chunks]
        numbers = np.repeat([chunk.adapter for chunk in chunks], lengths)
        return _by_adapter(numbers, self._adapters), _by_adapter(numbers[wanted], self._adapters)

    def _reach(self, position: int) -> None:
        """Know the angles of positions up to one at least."""
        for number, rotation in enumerate(self._rotations):
            if position >= self._net.positions(number):
                count = max(LEAST_POSITIONS, 1 << int(position).bit_length())
                tables = rotation.tables(np.arange(count))
                if self._kind:  # as transformers rounds them, for the same answers
                    tables = _rounded(tables[0], self._kind), _rounded(tables[1], self._kind)
                self._net.set_tables(number, *tables)

    def _drawn(self, chunks: Sequence[Chunk]) -> list[Drawn | None]:
        """Each chunk's draw, or None without one."""
        draws = [draw for chunk in chunks for draw in chunk.draws]
        drawn: list[Drawn] = []
        while len(drawn) < len(draws):
            rows = self._net.next_logits(self._threads) if drawn else self._rows
            drawn += follow_draws(self._logits(rows), draws[len(drawn) : len(drawn) + rows])
        self._check()
        return drawn_by_chunk(drawn, chunks)

    def _logits(self, count: int) -> Logits:
        def row(at: int) -> npt.NDArray[np.float32]:
            return widen(self._net.logits(count)[at], self._kind)

        return Logits(self._net.largest(count), row)


class _CachedStates:
    """The states of a cache as bytes; see relquery.model.store.Cache."""

    def __init__(self, store: Store, decoder: Decoder, kind: int) -> None:
        self._store, self._heads = store, [heads for heads, _, _ in decoder.shapes]
        self.layers, self.kind = len(decoder.shapes), "U8" if kind == INT8 else NAMES[kind]

    def read(self, layer: int, slots: Slots) -> LayerStates:
        """The states at slots."""
        keys, values = self._store.read(layer, slots.astype(np.int64))
        shape = self._heads[layer], len(slots), -1
        return LayerStates(keys.reshape(shape), values.reshape(shape))

    def write(self, layer: int, slots: Slots, states: LayerStates) -> None:
        """Put states at slots."""
        keys, values = (np.ascontiguousarray(each).reshape(-1) for each in states)
        self._store.write(layer, slots.astype(np.int64), keys, values)


@dataclass(frozen=True, slots=True)
class _StepSlice:
    """Some tokens of a step: native refers to the arrays, which may be changed in place."""

    tokens: Int64s
    positions: Int64s
    slots: Int64s
    plan: AttentionPlan
    native: Slice


class _Last:
    """The latest step, each of whose chunks is a token of a run: another may follow it."""

    def __init__(self, chunks: Sequence[Chunk], made: _StepSlice) -> None:
        self.chunks, self.slice = chunks, made
        self._runs = [chunk.run for chunk in chunks]

    def follow(self, chunks: Sequence[Chunk]) -> bool:
        """Become the step of chunks that follow this one's by their runs; False if it cannot."""
        if [chunk.run for chunk in chunks] != self._runs:
            return False
        if [chunk.position - 1 for chunk in chunks] != self.slice.positions.tolist():
            return False
        self.chunks = chunks
        return self.advance(
            np.concatenate([chunk.tokens for chunk in chunks]),
            np.concatenate([chunk.writes for chunk in chunks]),
        )

    def advance(self, tokens: npt.NDArray[np.integer], slots: Slots) -> bool:
        """The same by tokens and slots (chunks,); the caller has to know that they follow."""
        if not self.slice.plan.grow(slots):
            return False
        self.slice.tokens[:], self.slice.slots[:] = tokens, slots
        self.slice.positions[:] += 1
        return True


def _rounded(table: Float32s, kind: int) -> Float32s:
    return widen(narrow(table.reshape(-1), kind), kind).reshape(table.shape)


def _by_adapter(numbers: Int64s, count: int) -> Adapted:
    """Rows by adapter. numbers: (rows,) of adapters, from 1 to count, or 0 for none."""
    order = np.argsort(numbers, kind="stable")
    ends = np.searchsorted(numbers[order], np.arange(count + 1), side="right")
    return Adapted(order[ends[0] :], ends[1:] - ends[0])
