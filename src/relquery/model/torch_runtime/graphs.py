"""Decode steps on a GPU as CUDA graphs: one launch instead of hundreds."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from transformers import PreTrainedModel

from relquery.arrays import Int64s
from relquery.engine.executor import Chunk
from relquery.model.torch_runtime.attention import PackedBatch
from relquery.model.torch_runtime.cache import KVCache
from relquery.model.torch_runtime.on_gpu import HeldAttention

MOST = 64
"""Tokens of a step that becomes a graph, at most."""
Capture = Callable[[Callable[[], Tensor]], Callable[[], Tensor]]
"""Gives a function that does again on the device what the given one did there."""


class HeldBatch:
    """Data of a batch that attention functions need, for steps that follow one another.

    slots: (tokens,) where keys and values of the present step go.
    """

    turn = None

    def __init__(self, cache: KVCache, slots: Tensor, attention: HeldAttention) -> None:
        self._cache, self._slots, self._attention = cache, slots, attention

    def write(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Store the batch's keys and values, each (tokens, kv_heads, head_dim)."""
        self._cache.write(layer, self._slots, keys, values)

    def attend(
        self,
        layer: int,
        queries: Tensor,
        *,
        scale: float,
        window: int | None = None,
        softcap: float | None = None,
        slopes: Tensor | None = None,
    ) -> Tensor:
        """See PackedBatch."""
        stored = self._cache.stored(layer)
        return self._attention.attend(
            layer, queries, stored, None, scale=scale, window=window, softcap=softcap, slopes=slopes
        )


@dataclass(frozen=True, slots=True)
class _Graph:
    """inputs: (3, tokens) tokens, positions and slots. wanted: (tokens,) places of the logits.

    The graph reads them where they are in memory, so they must not be freed before it.
    """

    inputs: Tensor
    wanted: Tensor
    attention: HeldAttention
    run: Callable[[], Tensor]


class GraphedSteps:
    """CUDA graphs for steps of up to MOST chunks of one token, whose logits are all wanted.

    There is a graph for each power of two; a smaller step repeats its last chunk, which writes the
    same keys and values once more. capture: CUDA's, unless it is tested elsewhere.
    """

    def __init__(self, network: PreTrainedModel, capture: Capture | None = None) -> None:
        self._network, self._capture = network, capture or cuda_graph
        self._graphs: dict[int, _Graph] = {}
        self._cache: Callable[[], KVCache | None] = lambda: None
        self._fails = False

    def __call__(self, tokens: Int64s, batch: PackedBatch) -> Tensor | None:
        """Logits (tokens, vocabulary); None if this step cannot be computed so."""
        if self._fails or not self._fits(batch):
            return None
        if self._cache() is not batch.cache:
            self._graphs, self._cache = {}, weakref.ref(batch.cache)
        count = batch.tokens
        size = 1 << (count - 1).bit_length()
        chunks = [*batch.chunks, *[batch.chunks[-1]] * (size - count)]
        inputs = torch.stack(
            [torch.from_numpy(each) for each in (tokens, batch.positions, batch.slots)]
        )
        inputs = torch.cat([inputs, inputs[:, -1:].expand(-1, size - count)], 1)
        graph = self._graphs.get(size)
        if graph is not None and graph.attention.follow(chunks):
            graph.inputs.copy_(inputs)
        else:
            try:
                graph = self._graphs[size] = self._make(inputs, chunks, batch)
            except RuntimeError as error:  # the network does what a graph cannot hold
                self._fails = True
                _log.warning("Decode steps do not run as CUDA graphs: %s", error)
                return None
        return graph.run()[:count].clone()

    def _fits(self, batch: PackedBatch) -> bool:
        return (
            batch.is_plain
            and batch.kernels is not None
            and batch.tokens == len(batch.chunks) <= MOST
            and batch.cache.stored(0) is not None
            and batch.is_ordered
        )

    def _make(self, given: Tensor, chunks: Sequence[Chunk], batch: PackedBatch) -> _Graph:
        inputs = given.to(batch.device)
        attention = HeldAttention(chunks, batch.share, batch.scheme)
        held = HeldBatch(batch.cache, inputs[2], attention)
        wanted = torch.arange(inputs.shape[1], device=batch.device)

        def compute() -> Tensor:
            output = self._network(
                input_ids=inputs[:1],
                position_ids=inputs[1:2],
                use_cache=False,
                logits_to_keep=wanted,
                batch=held,
            )
            return cast(Tensor, output.logits[0])

        return _Graph(inputs, wanted, attention, self._capture(compute))


def cuda_graph(compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Capture a computation as a CUDA graph. See Capture."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # kernels are compiled and memory is found before the capture
        for _ in range(2):
            compute()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = compute()

    def replay() -> Tensor:
        graph.replay()
        return result

    return replay


_log = logging.getLogger("relquery")
