"""A decode step as one program, recorded once and run again: what CUDA graphs are on a GPU.

A step of one token takes some seventy bodies. Started one by one from Python they take 1.5 times
as long as in a row.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from threading import Lock

import numpy as np
import torch
from torch import Tensor

from relquery.arrays import Int64s
from relquery.model.attention.batch import PackedBatch
from relquery.model.attention.compiled import CompiledAttention
from relquery.model.cache.device import KVCache
from relquery.model.forward.packed import PackedWeight, padded_rows
from relquery.model.forward.run import Layer, Run, Tables
from relquery.model.kernels import panels
from relquery.model.kernels import rows as row_passes
from relquery.model.kernels.attention import arguments as attention
from relquery.model.kernels.attention.tasks import ATTEND, MERGE
from relquery.model.kernels.program import Program, can_run
from relquery.model.kernels.threads import Body, threads

MOST = panels.MOST
"""Tokens of a recorded step at most."""
PLAN = list(attention.PLAN)


def can_record(batch: PackedBatch) -> bool:
    """Whether a batch can be computed by a recorded step, where all weights have our own kernel."""
    return (
        batch.tokens <= MOST
        and batch.is_plain
        and isinstance(batch.kernels, CompiledAttention)
        and can_run()
    )


class RecordedStep:
    """Computes steps of up to MOST tokens whose logits are all wanted.

    embedding: (vocabulary, width). layer: any of the network's, which are alike. compute: the
    forward pass, from a run and embedded tokens to logits.
    """

    def __init__(
        self, embedding: Tensor, layer: Layer, compute: Callable[[Run, Tensor], Tensor]
    ) -> None:
        self._embedding, self._layer, self._compute = embedding, layer, compute
        self._lock = Lock()
        self._threads = 0
        self._cache: Callable[[], KVCache | None] = lambda: None

    def __call__(self, tokens: Int64s, batch: PackedBatch, tables: Tables) -> Tensor | None:
        """Logits (tokens, vocabulary), until the next step; None if this cannot be computed so."""
        stored, kernels, count = batch.cache.stored(0), batch.kernels, batch.tokens
        if stored is None or not isinstance(kernels, CompiledAttention):
            return None
        queries = self._layer.heads, self._layer.width
        prepared = kernels.prepare(queries, self._embedding.dtype, stored, None)
        if len(prepared.plan.shift_values):
            return None
        rows = padded_rows(count)
        if tokens.min() < 0 or tokens.max() >= len(self._embedding):
            raise IndexError(
                f"A token id is not among the {len(self._embedding):,} of the network."
            )
        ids = np.zeros(rows, dtype=np.int64)
        ids[:count] = tokens
        plan, (cosines, sines) = prepared.arguments.numbers, tables
        with self._lock:
            if self._cache() is not batch.cache or self._threads != threads():
                self._record(batch, tables)
            inputs = ids, batch.slots, batch.positions
            self._program.run(
                [
                    rows,
                    rows,
                    count,
                    *(each.ctypes.data for each in inputs),
                    *(each.data_ptr() for each in (cosines, sines)),
                    *plan[PLAN].tolist(),
                ]
            )
            return self._logits[:count]

    def _record(self, batch: PackedBatch, tables: Tables) -> None:
        embedding = self._embedding
        recorder = Recorder(batch, tables)
        hidden = recorder.look_up(embedding, MOST)
        # Their place belongs to the recording: whoever reads them has a cache of its own.
        self._logits = self._compute(recorder, hidden)
        self._results = recorder.results

        def of(*bodies: Body) -> list[int]:
            return [at for at, each in enumerate(recorder.bodies) if each in bodies]

        passes = of(row_passes.LOOK_UP, row_passes.NORMALIZE, row_passes.ACTIVATE)
        products, turns, attends = of(panels.MULTIPLY), of(row_passes.ROTATE), of(ATTEND, MERGE)
        self._program = Program(
            recorder.bodies,
            recorder.arguments,
            [
                (passes, row_passes.ROWS),
                (products, panels.ROWS),
                (turns, row_passes.ROWS),
                ([0], row_passes.TOKENS),
                (turns, row_passes.SLOTS),
                (turns, row_passes.POSITIONS),
                (turns, row_passes.COSINES),
                (turns, row_passes.SINES),
                *((attends, each) for each in attention.PLAN),
            ],
        )
        self._cache, self._threads = weakref.ref(batch.cache), threads()


class Recorder(Run):
    """Notes the bodies of each operation and what they are told, for MOST rows.

    Results of one name and width are in one place: each is read by the next operation alone.
    """

    def __init__(self, batch: PackedBatch, tables: Tables) -> None:
        super().__init__(batch, tables)
        self.bodies: list[Body] = []
        self.arguments: list[Int64s] = []
        self.results: dict[tuple[object, ...], Tensor] = {}

    def look_up(self, embedding: Tensor, rows: int) -> Tensor:
        """Embedded tokens (rows, width)."""
        hidden = self._new("hidden", embedding, rows, embedding.shape[1])
        self._go_through(row_passes.LOOK_UP, embedding, hidden, embedding.shape[1])
        return hidden

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
        assert chosen is None
        kernels, stored = self.batch.kernels, self.batch.cache.stored(number)
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
