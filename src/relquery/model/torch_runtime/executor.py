"""The executor that computes: chunks of many requests as one packed forward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache, partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from relquery.arrays import Float32s, Int64s, Slots
from relquery.engine.executor import NOT_FINITE, SCRATCH, Chunk, Drawn, drawn_by_chunk
from relquery.engine.requests.request import Draw
from relquery.model.attention_plan import cut, own_slots, wanted_of
from relquery.model.sampler import Logits, follow_draws, tokens_read
from relquery.model.store import StateStore
from relquery.model.torch_runtime.attention.batch import PackedBatch, Turn
from relquery.model.torch_runtime.cache.device import CachedStates, KVCache
from relquery.model.torch_runtime.cache.host import HostCache
from relquery.model.torch_runtime.cache.rotary import PositionScheme
from relquery.model.torch_runtime.forward import Forward
from relquery.model.torch_runtime.slices.allocator import return_freed_memory
from relquery.model.torch_runtime.slices.release import (
    NOTHING,
    Release,
    begin,
    find_release,
    let_go,
    watch,
)
from relquery.model.torch_runtime.slices.turns import Wait, leave, take_turns


class TorchExecutor:
    """Runs the forward pass of a `transformers` decoder.

    slots: capacity of the KV cache in tokens. share, slice_tokens: see EngineConfig.
    scheme: the network's positions; without it, spans can only be used at their own position.
    release: what its runs no longer need once the keys and values of a layer are stored.
    host_slots: capacity of the cache in host memory. lean: in a step of several slices, take no
    more CPU memory than the tensors need; slower.
    """

    def __init__(
        self,
        forward: Forward,
        slots: int,
        share: bool = True,
        scheme: PositionScheme | None = None,
        slice_tokens: int = 2_048,
        release: Release = NOTHING,
        host_slots: int = 0,
        lean: bool = False,
    ) -> None:
        self._compute = forward
        self._device = forward.network.device
        self._layers = int(forward.network.config.get_text_config().num_hidden_layers)
        self._slice_tokens, self._release = slice_tokens, release
        self._cache, self._host = KVCache(slots), HostCache(host_slots)
        self._share, self._lean = share, lean
        self._scheme = scheme

    @torch.inference_mode()
    def execute(self, chunks: Sequence[Chunk]) -> list[Drawn | None]:
        """Compute all chunks as one batch, in slices if it is long; logits only where wanted."""
        slices = cut(chunks, self._slice_tokens)
        own = own_slots(chunks)
        scratch = KVCache(own, keeps=False) if own else None
        if len(slices) == 1:
            return _drawn([self._forward(self._batch(chunks, scratch))], chunks)
        with return_freed_memory() if self._lean else nullcontext():
            turns = take_turns(self._runs(slices, scratch, self._layers))
        return _drawn([found for found in reversed(turns) if found is not None], chunks)

    def follow(self, tokens: Sequence[int], slots: Slots) -> list[Drawn | None] | None:
        """See Executor. It wants chunks."""
        return None

    @torch.inference_mode()
    def rehearse(self, chunks: Sequence[Chunk], layers: int) -> None:
        """Compute the first layers of a step of several slices, without results: to measure it."""
        slices = cut(chunks, self._slice_tokens)
        scratch = KVCache(own_slots(chunks), keeps=False)
        take_turns(self._runs(slices, scratch, min(layers, self._layers)))

    def _runs(
        self, slices: Sequence[Sequence[Chunk]], scratch: KVCache | None, layers: int
    ) -> list[Callable[[Wait], Tensor]]:
        """One run per slice, the last one first: no other slice reads its keys, so it may replace
        them by the next layer's."""
        return [partial(self._take_turns, part, scratch, layers) for part in reversed(slices)]

    def _take_turns(
        self, chunks: Sequence[Chunk], scratch: KVCache | None, layers: int, wait: Wait
    ) -> Tensor:
        """Run a slice of a step; returns its logits, if some of its tokens need them."""
        wanted = layers == self._layers and any(chunk.draw for chunk in chunks)

        def turn(layer: int, states: tuple[Tensor, ...]) -> None:
            if layer == layers - 1 and not wanted:
                leave()  # nothing after the last keys and values is needed
            let_go(self._release, layer, states)
            wait()

        begin()
        return self._forward(self._batch(chunks, scratch, turn))

    def _batch(
        self, chunks: Sequence[Chunk], scratch: KVCache | None, turn: Turn | None = None
    ) -> PackedBatch:
        return PackedBatch(
            chunks,
            self._cache,
            self._share,
            self._device,
            self._scheme,
            "queries",
            scratch,
            turn,
            self._host,
        )

    def _forward(self, batch: PackedBatch) -> Tensor:
        """Run the network: logits of all draws."""
        tokens = np.concatenate([chunk.tokens for chunk in batch.chunks]).astype(np.int64)
        return self._compute(tokens, batch, wanted_of(batch.chunks))

    @property
    def slot_bytes(self) -> int:
        """Bytes of one token in the cache. One step must have been executed."""
        return self._cache.slot_bytes

    def store(self, memory: int, folder: Path | None, disk: int) -> StateStore:
        """A store of states of this executor's cache; see StateStore."""
        network = self._compute.network
        like = torch.empty(0, dtype=network.dtype, device=network.device)
        return StateStore(CachedStates(self._cache, self._layers, like), memory, folder, disk)

    @torch.inference_mode()
    def reserve(self) -> None:
        """Allocate memory for the whole cache now. One step must have been executed."""
        self._cache.reserve()

    def close(self) -> None:
        """Forget the caches."""
        self._cache, self._host = KVCache(0), HostCache(0)


def _drawn(found: Sequence[Tensor], chunks: Sequence[Chunk]) -> list[Drawn | None]:
    """Each chunk's draw, or None without one. found: logits of some of the draws each, in order."""
    draws = [draw for chunk in chunks for draw in chunk.draws]
    if not draws:
        return [None] * len(chunks)
    rows = found[0] if len(found) == 1 else torch.cat(list(found))
    whole = cache(lambda: on_host(rows, tokens_read(draws)))
    logits = Logits(largest_of(rows), lambda at: whole()[at])
    return drawn_by_chunk(follow_draws(logits, draws), chunks)


def on_host(logits: Tensor, read: Int64s | None) -> Float32s:
    """Logits (rows, vocabulary), of these tokens alone if not None: the labels of a filter are few
    of 100,000 tokens. The others are zeros, which take neither time nor memory."""
    if read is None:
        return logits.float().cpu().numpy()
    found = np.zeros(logits.shape, dtype=np.float32)
    places = torch.from_numpy(read).to(logits.device)
    found[:, read] = logits.index_select(1, places).float().cpu().numpy()
    return found


def largest_of(logits: Tensor) -> Int64s:
    """The token (rows,) of each row's largest logit, the first of several, or NOT_FINITE; NaN
    counts for nothing."""
    seen = logits.masked_fill(logits.isnan(), -torch.inf)
    among = seen.argmax(-1)
    finite = seen.gather(1, among[:, None]).isfinite()[:, 0]
    places: Int64s = among.where(finite, NOT_FINITE).cpu().numpy()
    return places


def probe_release(network: PreTrainedModel) -> Release:
    """What a network's runs no longer need once a layer's keys and values are stored."""
    watch(network)
    tokens = np.arange(6, dtype=np.int32)
    draw = Draw(allowed=tuple(range(8)), weigh=True)
    chunk = Chunk(0, tokens, 0, (), SCRATCH + np.arange(6), draw)

    forward = Forward(network)

    def run(release: Release) -> list[Drawn | None]:
        return TorchExecutor(forward, 0, slice_tokens=2, release=release).execute([chunk])

    return find_release(run)
