"""Whether a network computes on our attention function what it computes on its own, by experiment.

Some networks do more between tokens than attention as we know it (masks that depend on the tokens,
convolutions, attention in fixed chunks), and would answer wrongly without a word.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from math import isnan
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from relquery.engine.executor import Chunk, Segment
from relquery.errors import ModelError, UnsupportedNetworkError
from relquery.model.attention.batch import PackedBatch
from relquery.model.attention.function import Watched, watch_calls
from relquery.model.cache.device import KVCache
from relquery.model.forward.stock import Forward, StockForward

TOKENS, FIRST = 12, 7
"""Of the prompt that is computed, and those of it that our first step computes. The last step
computes a single token, as when decoding."""
MOST_APART = {torch.float32: 1e-3}
MOST_APART_ROUNDED = 0.3
"""Distance of the logits, relative to their size. Rounding may send a token to other experts."""


NARROW = 4
"""Tokens of a limit when it is tried; the network's own are longer than the prompt."""
LIMITS = {
    "sliding_window": "its sliding windows hide other tokens than the engine's",
    "keep_window_size": "its masks depend on the tokens",
    "floor_scale": "its queries grow with positions that it counts by itself",
}
"""Attributes that change attention after so many tokens, and what is wrong if ours differs then."""


class Own(NamedTuple):
    """(vocabulary,) logits after a fixed prompt, by a network's own attention.

    narrow: with a limit of NARROW tokens, for each of LIMITS that the network has.
    """

    whole: Tensor
    narrow: dict[str, Tensor]


@torch.inference_mode()
def own_logits(network: PreTrainedModel) -> Own:
    """Logits by the attention that the network has now."""
    given = torch.from_numpy(_prompt(network)).long()[None].to(network.device)

    def last() -> Tensor:
        return _centred(network(input_ids=given, use_cache=False).logits[0, -1])

    narrow = {}
    for limit in LIMITS:
        with _narrowed(network, limit) as is_there:
            if is_there:
                narrow[limit] = last()
    return Own(last(), narrow)


@torch.inference_mode()
def check_same(network: PreTrainedModel, own: Own, context: int | None) -> Watched:
    """Run the prompt on our attention function. Raises UnsupportedNetworkError if it differs.

    own: what `own_logits` gave before. context: positions that will be used, in tokens. Returns
    what the network asked of our attention function.
    """
    with watch_calls() as watched:
        apart = distance(StockForward(network), own.whole)
    for size in sorted(watched.asked - watched.used if _has_limits(network) else ()):
        if context is None or size < context:
            raise UnsupportedNetworkError(
                f"its attention is limited to {size} tokens in a way that the engine does not "
                "support."
            )
    if isnan(apart):  # torch's attention can drop a NaN that ours keeps
        raise not_finite(network)
    if not apart <= MOST_APART.get(network.dtype, MOST_APART_ROUNDED):
        raise UnsupportedNetworkError(
            "its layers compute something else than the attention that the engine supports; its "
            f"logits would be off by {apart:.1%}."
        )
    for limit, expected in own.narrow.items():
        with _narrowed(network, limit):
            apart = distance(StockForward(network), expected)
        if not apart <= MOST_APART.get(network.dtype, MOST_APART_ROUNDED):
            raise UnsupportedNetworkError(
                f"{LIMITS[limit]}; its logits would be off by {apart:.1%}."
            )
    return watched


def not_finite(network: PreTrainedModel) -> ModelError:
    """The error of a network whose logits are not finite numbers."""
    return ModelError(
        "The model computes no finite numbers: its weights are damaged, or exceed the range of "
        f"{str(network.dtype).removeprefix('torch.')}. Try dtype='float32', or download it again."
    )


def _has_limits(network: PreTrainedModel) -> bool:
    """Whether any layer may attend to fewer tokens than there are. A network may ask for masks of
    a window that none of its layers has."""
    kinds = getattr(network.config.get_text_config(), "layer_types", None)
    return not kinds or set(kinds) != {"full_attention"}


@torch.inference_mode()
def distance(forward: Forward, own: Tensor) -> float:
    """How far the prompt's logits are from a network's own, relative to their size.

    The prompt is computed in three steps, the last of which is a decode step.
    """
    network, cache = forward.network, KVCache(TOKENS)
    ids, slots = _prompt(network), np.arange(TOKENS)
    last = own
    for start, stop in pairwise((0, FIRST, TOKENS - 1, TOKENS)):
        seen = (Segment(slots[:start]),) if start else ()
        chunk = Chunk(0, ids[start:stop], start, seen, slots[start:stop])
        batch = PackedBatch([chunk], cache, share=True, device=network.device)
        last = forward(chunk.tokens.astype(np.int64), batch, [stop - start - 1]).rows[-1]
    size_of = torch.linalg.vector_norm
    return float(size_of(_centred(last) - own)) / max(float(size_of(own)), 1e-9)


@contextmanager
def _narrowed(network: PreTrainedModel, limit: str) -> Iterator[bool]:
    """Make a limit NARROW tokens meanwhile, wherever it is. Yields whether it is anywhere."""
    holders: list[Any] = [network.config.get_text_config(), *network.modules()]
    sizes = [(each, getattr(each, limit, None)) for each in holders]
    narrowed = [(each, size) for each, size in sizes if type(size) is int and size > NARROW]
    for each, _ in narrowed:
        setattr(each, limit, NARROW)
    try:
        yield bool(narrowed)
    finally:
        for each, size in narrowed:
            setattr(each, limit, size)


def _prompt(network: PreTrainedModel) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Tokens from the middle of the vocabulary: no padding, no control."""
    size = int(network.config.get_text_config().vocab_size)
    return (size // 4 + np.arange(TOKENS) * 7919 % max(size // 2, 1)).astype(np.int32)


def _centred(logits: Tensor) -> Tensor:
    """What matters of logits: their differences."""
    logits = logits.float()
    return logits - logits.mean()
