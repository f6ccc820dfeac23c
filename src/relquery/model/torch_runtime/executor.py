"""The executor that computes on torch: chunks of many requests as one packed forward pass.

A long step is cut into slices (hybrid prefilling, paper 004, section 4). The network runs once for
each slice, and the runs take turns, one layer at a time: a run continues from its attention to the
next layer's, where its keys and values are stored, and lets the others catch up. So everything a
network computes token by token, whatever its modules, only holds the intermediate results of one
slice, and keys and values are only needed for one layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from relquery.arrays import Float32s, Int64s, Slots
from relquery.engine.executor import NOT_FINITE, Chunk, Drawn, drawn_by_chunk
from relquery.model.attention_plan import cut, own_slots, wanted_of
from relquery.model.sampler import Logits, follow_draws, tokens_read
from relquery.model.store import StateStore
from relquery.model.torch_runtime.attention import PackedBatch, Turn
from relquery.model.torch_runtime.cache import CachedStates, KVCache, PositionScheme
from relquery.model.torch_runtime.graphs import GraphedSteps

T = TypeVar("T")
Wait = Callable[[], None]


class Forward:
    """A network's own forward pass, with our attention function."""

    def __init__(self, network: PreTrainedModel) -> None:
        self.network = network
        self._graphs = GraphedSteps(network) if network.device.type == "cuda" else None

    def __call__(self, tokens: Int64s, batch: PackedBatch, wanted: Sequence[int]) -> Tensor:
        """Logits (wanted, vocabulary) after some of a batch's tokens (tokens,)."""
        if self._graphs is not None and len(wanted) == batch.tokens:
            logits = self._graphs(tokens, batch)
            if logits is not None:
                return logits
        device = self.network.device
        output = self.network(
            input_ids=torch.from_numpy(tokens)[None].to(device),
            position_ids=torch.from_numpy(batch.positions)[None].to(device),
            use_cache=False,
            logits_to_keep=torch.tensor(wanted, dtype=torch.long, device=device),
            batch=batch,
        )
        last: Tensor = output.logits[0]
        return last


class TorchExecutor:
    """An executor of the forward pass of a `transformers` decoder.

    slots: capacity of the KV cache in tokens. share, slice_tokens: see EngineConfig. scheme: the
    network's positions; without it, spans can only be used at their own position.
    """

    def __init__(
        self,
        forward: Forward,
        slots: int,
        share: bool = True,
        scheme: PositionScheme | None = None,
        slice_tokens: int = 2_048,
    ) -> None:
        self._compute = forward
        self._device = forward.network.device
        self._layers = int(forward.network.config.get_text_config().num_hidden_layers)
        self._slice_tokens = slice_tokens
        self._cache = KVCache(slots)
        self._share, self._scheme = share, scheme

    @torch.inference_mode()
    def execute(self, chunks: Sequence[Chunk]) -> list[Drawn | None]:
        """Compute all chunks as one batch, in slices if it is long; logits only where wanted."""
        slices = cut(chunks, self._slice_tokens)
        own = own_slots(chunks)
        scratch = KVCache(own, keeps=False) if own else None
        if len(slices) == 1:
            return _drawn([self._forward(chunks, scratch)], chunks)
        # The last one first: no other slice reads its keys, so it may replace them by the next
        # layer's.
        runs = [partial(self._take_turns, part, scratch) for part in reversed(slices)]
        logits = reversed(take_turns(runs))
        return _drawn([row for row in logits if row is not None], chunks)

    def follow(self, tokens: Sequence[int], slots: Slots) -> list[Drawn | None] | None:
        """See Executor. It wants chunks."""
        return None

    def _take_turns(self, chunks: Sequence[Chunk], scratch: KVCache | None, wait: Wait) -> Tensor:
        """Run a slice of a step; returns its logits, if some of its tokens need them."""
        is_wanted = any(chunk.draw for chunk in chunks)

        def turn(layer: int) -> None:
            if layer == self._layers - 1 and not is_wanted:
                leave()  # nothing after the last keys and values is needed
            wait()

        return self._forward(chunks, scratch, turn)

    def _forward(
        self, chunks: Sequence[Chunk], scratch: KVCache | None, turn: Turn | None = None
    ) -> Tensor:
        """Run the network: logits of all draws."""
        batch = PackedBatch(
            chunks,
            self._cache,
            self._share,
            self._device,
            self._scheme,
            scratch,
            turn,
        )
        tokens = np.concatenate([chunk.tokens for chunk in chunks]).astype(np.int64)
        return self._compute(tokens, batch, wanted_of(chunks))

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
        """Forget the cache."""
        self._cache = KVCache(0)


def take_turns(runs: Sequence[Callable[[Wait], T]]) -> list[T | None]:
    """Results of all runs; each is called with a function that lets all other runs continue.

    They continue in the given order. A run that calls `leave` has no result.
    """
    from greenlet import GreenletExit, getcurrent, greenlet

    results: list[T | None] = [None] * len(runs)
    wait = getcurrent().switch

    def start(number: int) -> None:
        results[number] = runs[number](wait)

    turns = [greenlet(partial(start, number)) for number in range(len(runs))]
    try:
        while any(not turn.dead for turn in turns):
            for turn in turns:
                if not turn.dead:
                    turn.switch()
    finally:  # if a run has failed, the others' frames release what they hold
        for turn in turns:
            if not turn.dead:
                turn.throw(GreenletExit)
    return results


def leave() -> None:
    """End the run that calls it."""
    from greenlet import GreenletExit

    raise GreenletExit


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
    rows = np.zeros(logits.shape, dtype=np.float32)
    places = torch.from_numpy(read).to(logits.device)
    rows[:, read] = logits.index_select(1, places).float().cpu().numpy()
    return rows


def largest_of(logits: Tensor) -> Int64s:
    """The token (rows,) of each row's largest logit, the first of several, or NOT_FINITE; NaN
    counts for nothing."""
    seen = logits.masked_fill(logits.isnan(), -torch.inf)
    among = seen.argmax(-1)
    finite = seen.gather(1, among[:, None]).isfinite()[:, 0]
    places: Int64s = among.where(finite, NOT_FINITE).cpu().numpy()
    return places
