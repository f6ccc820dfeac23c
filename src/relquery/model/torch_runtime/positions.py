"""The positions in a network's keys: found by experiment, without a list of models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from relquery.engine.executor import Chunk
from relquery.model.torch_runtime.attention import PackedBatch
from relquery.model.torch_runtime.cache import KVCache, PositionScheme, RotaryEmbedding

NEAR = (1, 7)
"""Positions where angles are exact enough to tell frequencies and layouts apart."""
FARTHEST = 1 << 20
"""Beyond this position, in tokens, float32 angles are too coarse to be useful."""
DEFAULT_CONTEXT = 8_192
"""Positions, in tokens, to try if a network does not say how many it has."""


_LONGER = {torch.float32: 1e-3, torch.bfloat16: 0.03, torch.float16: 5e-3}
"""How much longer a query may be than at another position, by rounding alone."""


class _Recorder(KVCache):
    """A cache that also keeps what one forward pass writes, by layer."""

    def __init__(self) -> None:
        super().__init__(slots=1)
        self.written: dict[int, tuple[Tensor, Tensor]] = {}

    def write(self, layer: int, slots: Tensor, key: Tensor, value: Tensor) -> None:
        self.written[layer] = key.clone(), value.clone()
        super().write(layer, slots, key, value)


class _Measuring(PackedBatch):
    """A batch that also keeps how long the queries of each layer are, as vectors."""

    lengths: dict[int, float]

    def attend(self, layer: int, queries: Tensor, **options: Any) -> Tensor:
        """See PackedBatch."""
        self.lengths[layer] = float(torch.linalg.vector_norm(queries.float()))
        return super().attend(layer, queries, **options)


class _Seen(NamedTuple):
    """The results of one forward pass of a single token in a layer.

    key, value: (1, kv_heads, head_dim). query: its length as a vector.
    """

    key: Tensor
    value: Tensor
    query: float


@torch.inference_mode()
def probe_positions(network: PreTrainedModel, context: int | None = None) -> PositionScheme:
    """Find out how a network that runs on our attention function places its keys.

    context: positions that will be used, in tokens; by default all that the network has. A single
    token sees only itself. So its hidden states are the same at every position, in every layer,
    unless positions enter outside attention (learned embeddings). And its key is the key at
    position 0, rotated or unchanged, unless frequencies change with the length. Its query is as
    long as at position 0, unless far queries weigh keys more sharply (Ministral 3).
    """
    last = _last_position(network, context)
    positions = sorted({min(near, last) for near in NEAR} | {last}, reverse=True)
    # Position 0 runs last, so that length-dependent frequencies are back at their first values.
    runs = {position: _run(network, position) for position in [*positions, 0]}
    candidates = [None, *_candidates(network)]
    layers: list[RotaryEmbedding | None] = []
    for layer in sorted(runs[0]):
        keys = {position: run[layer].key for position, run in runs.items()}
        values = {position: run[layer].value for position, run in runs.items()}
        misfits = [_misfit(keys, rotary) for rotary in candidates]
        best = int(np.argmin(misfits))
        lengths = [run[layer].query for run in runs.values()]
        is_sharper = max(lengths) > (1 + _LONGER[network.dtype]) * min(lengths)
        if misfits[best] > 1 or _misfit(values, None) > 1 or is_sharper:
            return PositionScheme((None,) * len(runs[0]), relocatable=False)
        layers.append(candidates[best])
    return PositionScheme(tuple(layers), relocatable=True)


def _last_position(network: PreTrainedModel, context: int | None) -> int:
    declared = int(getattr(network.config.get_text_config(), "max_position_embeddings", 0) or 0)
    return min(context or declared or DEFAULT_CONTEXT, FARTHEST) - 1


def _run(network: PreTrainedModel, position: int) -> dict[int, _Seen]:
    """What is computed of one token, by layer."""
    token = int(network.config.get_text_config().vocab_size) // 2  # no padding token, no control
    cache = _Recorder()
    chunk = Chunk(0, np.array([token], dtype=np.int32), position, (), np.zeros(1, dtype=np.int64))
    batch = _Measuring([chunk], cache, share=True, device=network.device)
    batch.lengths = {}
    network(
        input_ids=torch.tensor([[token]], device=network.device),
        position_ids=torch.tensor([[position]], device=network.device),
        use_cache=False,
        batch=batch,
    )
    return {
        layer: _Seen(*states, batch.lengths.get(layer, 0.0))
        for layer, states in cache.written.items()
    }


def _candidates(network: PreTrainedModel) -> list[RotaryEmbedding]:
    """Every set of frequencies in the network, in both layouts."""
    distinct: list[Tensor] = []
    for name, buffer in network.named_buffers():
        if not name.endswith("inv_freq") or buffer.dim() != 1:
            continue
        # Copies: some networks write other frequencies into the same buffer.
        frequencies = buffer.detach().float().clone()
        if not any(torch.equal(frequencies, other) for other in distinct):
            distinct.append(frequencies)
    return [RotaryEmbedding(f, interleaved) for f in distinct for interleaved in (False, True)]


def _misfit(states: Mapping[int, Tensor], rotary: RotaryEmbedding | None) -> float:
    """Largest deviation from position 0's rotated states; up to 1 is explained by rounding.

    states: by position, each (1, heads, head_dim).
    """
    start = states[0].float()
    if rotary is not None and 2 * len(rotary.frequencies) > start.shape[-1]:
        return float("inf")
    size = float(start.abs().max())
    rounding = torch.finfo(states[0].dtype).eps
    worst = 0.0
    for position, state in states.items():
        if rotary is None:  # the same computation throughout: nothing but noise may differ
            expected, allowed = start, 2 * rounding
        else:
            # Cosine, sine, two products and their sum are rounded to the network's type; and
            # networks compute angles in float32, off by up to position * 2**-24 radians.
            by = torch.tensor([position], device=start.device)
            expected = rotary.rotate(start, by)
            allowed = 8 * rounding + position * torch.finfo(torch.float32).eps
        error = float((state.float() - expected).abs().max())
        if not np.isfinite(error):
            return float("inf")
        worst = max(worst, error / max(size * allowed, torch.finfo(torch.float32).tiny))
    return worst
