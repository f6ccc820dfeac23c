"""A short step as one program, recorded once and run again: what CUDA graphs are on a GPU.

A step of one token takes some seventy bodies. Started one by one from Python they take 1.5 times
as long as in a row; those of 30 tokens after 5,000 take 2 ms of 15 longer.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from relquery.arrays import Int64s
from relquery.model.attention.batch import PackedBatch
from relquery.model.attention.compiled import CompiledAttention
from relquery.model.cache.device import KVCache
from relquery.model.forward.packed import PackedWeight, padded_rows
from relquery.model.forward.run import Layer, Run, Tables
from relquery.model.forward.stock import Logits
from relquery.model.kernels import largest, panels
from relquery.model.kernels import rows as row_passes
from relquery.model.kernels.arguments import Stored, places
from relquery.model.kernels.attention import arguments as attention
from relquery.model.kernels.attention.arguments import ATTEND, MERGE
from relquery.model.kernels.program import Program, can_run
from relquery.model.kernels.threads import Body, threads

MOST = panels.MOST
"""Tokens of a recorded step at most."""
IN_STEP = [*attention.PLAN, *attention.ROTATION]
"""What attention is told in each step, in each part of the pass."""
Compute = Callable[[Run, Tensor, Sequence[int]], Tensor]


def can_record(batch: PackedBatch, windowed: bool) -> bool:
    """Whether a batch can be computed by a recorded step, where all weights have our own kernel.

    windowed: whether a layer has a sliding window.
    """
    return (
        batch.tokens <= MOST
        and batch.is_plain
        and (batch.is_ordered or not windowed)
        and isinstance(batch.kernels, CompiledAttention)
        and can_run()
    )


class RecordedStep:
    """Computes steps of up to MOST tokens: those whose logits are all wanted, or the others.

    embedding: (vocabulary, width). layer: any of the network's, which are alike. compute: the
    forward pass, from a run, embedded tokens and which are wanted to logits.
    """

    def __init__(self, embedding: Tensor, layer: Layer, compute: Compute) -> None:
        self._embedding, self._layer, self._compute = embedding, layer, compute
        self._vocabulary = len(embedding)
        self._state = embedding.new_empty(1, layer.kv_heads, layer.width)
        self._ids = np.zeros(MOST, dtype=np.int64)
        self._lock = Lock()
        self._recordings: WeakKeyDictionary[KVCache, _Recording] = WeakKeyDictionary()

    def __call__(
        self, tokens: Int64s, batch: PackedBatch, wanted: Sequence[int], tables: Tables
    ) -> Logits | None:
        """Logits, until the next step; None if this cannot be computed so."""
        if tokens.view(np.uint64).max() >= self._vocabulary:  # a negative id is a large number
            raise IndexError(f"A token id is not among the {self._vocabulary:,} of the network.")
        with self._lock:
            recording = self._recordings.get(batch.cache)
            if recording is not None and recording.threads != threads():
                recording = None
            if recording is None or not recording.told.holds_for(batch, wanted, tables):
                told = self._tell(batch, wanted, tables)
                if told is None:
                    return None
                if recording is None:
                    recording = self._record(batch, wanted, tables)
                    self._recordings[batch.cache] = recording
                recording.tell(told, len(wanted))
            self._ids[: len(tokens)] = tokens
            self._ids[len(tokens) :] = 0
            recording.program.run(recording.told.inputs)
            return recording.given

    def _tell(self, batch: PackedBatch, wanted: Sequence[int], tables: Tables) -> _Told | None:
        """What the program is told in this step. See __call__."""
        all_rows = padded_rows(batch.tokens)
        found = self._part(all_rows, batch.kernels, batch)
        if found is None:
            return None
        arrays, (cosines, sines) = [self._ids, batch.slots, batch.positions], tables
        own = None if batch.scratch is None else batch.scratch.prepare(0, self._state, self._state)
        told = [
            batch.tokens,
            *(each.ctypes.data for each in arrays),
            *(each.data_ptr() for each in (cosines, sines)),
            *places(own),  # the same for all layers
            *places(own),
            len(wanted),
            *found,
        ]
        if len(wanted) == batch.tokens:
            return _Told(np.array(told), weakref.ref(batch), tables)
        few = np.zeros(padded_rows(len(wanted)), dtype=np.int64)
        few[: len(wanted)] = wanted
        kernels = batch.kernels_at(wanted)
        chosen = self._part(len(few), kernels, batch)
        if chosen is None:
            return None
        return _Told(np.array([*told, *chosen, few.ctypes.data]), used=(few, kernels))

    def _part(self, rows: int, kernels: object, batch: PackedBatch) -> list[int] | None:
        """What the bodies of a part of the pass are told; see _inputs. None if they cannot be."""
        stored = batch.cache.stored(0)
        if stored is None or not isinstance(kernels, CompiledAttention):
            return None
        queries = self._layer.heads, self._layer.width
        prepared = kernels.prepare(queries, self._embedding.dtype, stored, None)
        if len(prepared.plan.shift_values) and not kernels.rotates_alike:
            return None
        kernels.tell_rotation(0, prepared)
        return [rows, rows, *prepared.arguments.numbers[IN_STEP].tolist()]

    def _record(self, batch: PackedBatch, wanted: Sequence[int], tables: Tables) -> _Recording:
        embedding = self._embedding
        recorder = Recorder(batch, tables)
        hidden = recorder.look_up(embedding, MOST)
        logits = self._compute(recorder, hidden, wanted)
        found = recorder.find_largest(logits)
        bodies, chosen = recorder.bodies, recorder.chosen
        turns = [at for at, body in enumerate(bodies) if body is row_passes.ROTATE]
        attends = [at for at, body in enumerate(bodies) if body in (ATTEND, MERGE)]
        until = chosen[0] if chosen else len(bodies)
        inputs = [
            (turns, row_passes.ROWS),
            ([0], row_passes.TOKENS),
            (turns, row_passes.SLOTS),
            (turns, row_passes.POSITIONS),
            (turns, row_passes.COSINES),
            (turns, row_passes.SINES),
            *((turns, each) for each in row_passes.OWN),
            *((attends, each) for each in attention.OWN),
            ([len(bodies) - 1], largest.ROWS),
            *_inputs(bodies, range(until)),
        ]
        if chosen:
            inputs += [*_inputs(bodies, range(until, len(bodies))), (chosen, row_passes.TOKENS)]
        program = Program(bodies, recorder.arguments, inputs)
        return _Recording(program, threads(), logits, found, recorder.results)


class _Recording:
    """A program for one cache, what it was told last, and where it leaves its results.

    results: all tensors that the program writes.
    """

    def __init__(
        self,
        program: Program,
        threads: int,
        logits: Tensor,
        found: Int64s,
        results: Mapping[tuple[object, ...], Tensor],
    ) -> None:
        self.program, self.threads, self.told = program, threads, _Told()
        self._logits, self._largest, self._results = logits, found, results
        self.given = Logits(logits[:0], found[:0])

    def tell(self, told: _Told, count: int) -> None:
        """Tell it something else, so that it gives so many logits."""
        self.told = told
        # Their place belongs to the recording: whoever reads them has a cache of its own.
        self.given = Logits(self._logits[:count], self._largest[:count])


class _Told(NamedTuple):
    """What a program was told.

    batch, tables: with which it is told the same again, where all logits are wanted. used: what it
    refers to beside the batch.
    """

    inputs: Int64s = np.empty(0, dtype=np.int64)
    batch: Callable[[], PackedBatch | None] = lambda: None
    tables: Tables | None = None
    used: tuple[object, ...] = ()

    def holds_for(self, batch: PackedBatch, wanted: Sequence[int], tables: Tables) -> bool:
        """Whether a step is told the same: its batch is the latest, which has followed itself."""
        is_same = self.batch() is batch and self.tables is tables
        return is_same and len(wanted) == batch.tokens


def _inputs(bodies: Sequence[Body], part: range) -> list[tuple[list[int], int]]:
    """What the bodies of a part of the pass are told in each step; see RecordedStep._part."""

    def of(*kinds: Body) -> list[int]:
        return [at for at in part if bodies[at] in kinds]

    return [
        (of(row_passes.LOOK_UP, row_passes.NORMALIZE, row_passes.ACTIVATE), row_passes.ROWS),
        (of(panels.MULTIPLY), panels.ROWS),
        *((of(ATTEND, MERGE), each) for each in IN_STEP),
    ]


class Recorder(Run):
    """Notes the bodies of each operation and what they are told, for MOST rows.

    Results of one name and width are in one place: each is read by the next operation alone.
    chosen: the bodies that choose the rows of wanted tokens, and after which there are no others.
    """

    def __init__(self, batch: PackedBatch, tables: Tables) -> None:
        super().__init__(batch, tables)
        self.bodies: list[Body] = []
        self.arguments: list[Int64s] = []
        self.results: dict[tuple[object, ...], Tensor] = {}
        self.chosen: list[int] = []

    def look_up(self, embedding: Tensor, rows: int) -> Tensor:
        """Embedded tokens (rows, width)."""
        hidden = self._new("hidden", embedding, rows, embedding.shape[1])
        self._go_through(row_passes.LOOK_UP, embedding, hidden, embedding.shape[1])
        return hidden

    def choose(
        self, hidden: Tensor, queries: Tensor, wanted: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """See Run."""
        found = [
            self._new(name, rows, *rows.shape)
            for name, rows in (("chosen", hidden), ("chosen queries", queries))
        ]
        for source, result in zip((hidden, queries), found, strict=True):
            self.chosen.append(len(self.bodies))
            self._go_through(row_passes.LOOK_UP, source, result, source[0].numel())
        return found[0], found[1]

    def multiply(self, weight: PackedWeight, rows: Tensor) -> Tensor:
        """See Run."""
        result = self._new("product", rows, len(rows), weight.outputs)
        work = self._work(panels.WORK_BYTES)
        self._note(panels.MULTIPLY, weight.arguments(rows, result, work).numbers)
        return result

    def gate(self, weight: PackedWeight, rows: Tensor, activation: int) -> Tensor:
        """See Run."""
        if not weight.gates(len(rows)):
            return super().gate(weight, rows, activation)
        result = self._new("gated", rows, len(rows), weight.outputs // 2)
        work = self._work(panels.WORK_BYTES)
        self._note(panels.MULTIPLY, weight.arguments(rows, result, work, activation).numbers)
        return result

    def attend(
        self, number: int, layer: Layer, queries: Tensor, chosen: Sequence[int] | None = None
    ) -> Tensor:
        """See Run."""
        kernels = self.batch.kernels if chosen is None else self.batch.kernels_at(chosen)
        stored = self.batch.cache.stored(number)
        assert isinstance(kernels, CompiledAttention)
        outputs, options = self._new("outputs", queries, *queries.shape), layer.options
        prepared = kernels.prepare(queries.shape[1:], queries.dtype, stored, None)
        kernels.tell(
            number,
            prepared,
            queries,
            outputs,
            stored,
            None,
            scale=options.scale,
            window=options.window,
            softcap=options.softcap,
        )
        a = prepared.arguments
        a[attention.WORK] = self._work(a[attention.WORK_BYTES]).data_ptr()
        self._note(ATTEND, a.numbers)
        self._note(MERGE, a.numbers)
        return outputs.flatten(1)

    def find_largest(self, logits: Tensor) -> Int64s:
        """The place (rows,) of each row's largest number. See relquery.model.kernels.largest."""
        result = np.zeros(len(logits), dtype=np.int64)
        self._note(largest.FIND, largest.arguments(logits, result).numbers)
        return result

    def _stores(self, number: int, keys: Tensor, values: Tensor) -> tuple[Stored | None, ...]:
        return self.batch.cache.prepare(number, keys, values), None

    def _new(self, name: str, like: Tensor, *shape: int) -> Tensor:
        key = name, *shape
        if key not in self.results:
            # Padding is computed with; it must not hold what slows that down.
            self.results[key] = like.new_zeros(*shape)
        return self.results[key]

    def _work(self, count: int) -> Tensor:
        """Memory of the threads, so many bytes each."""
        key = "work", count
        if key not in self.results:
            self.results[key] = torch.empty(threads() * count, dtype=torch.uint8)
        return self.results[key]

    def _go_through(self, body: Body, source: Tensor, result: Tensor, width: int) -> None:
        self._tell(source, result, width, self._work(row_passes.work_bytes(width)))
        self._note(body, self._a.numbers)

    def _note(self, body: Body, numbers: Int64s) -> None:
        self.bodies.append(body)
        self.arguments.append(numbers.copy())
