"""A check, by experiment, that a network computes the same on our attention function as on its own.

Some networks do more between tokens than attention as we know it (masks that depend on the tokens,
convolutions, attention in fixed chunks), and would answer wrongly without a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from math import isnan
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from relquery.arrays import TokenIds
from relquery.engine.executor import Chunk, Segment
from relquery.errors import ModelError, UnsupportedNetworkError
from relquery.model.text.tokenizer import Tokenizer
from relquery.model.torch_runtime.attention import PackedBatch, watch_calls
from relquery.model.torch_runtime.cache import KVCache
from relquery.model.torch_runtime.executor import Forward

TEXTS = (
    "The capital of France is Paris, and the capital of Japan is",
    "Review: a warm and funny film about two brothers. Is it positive?",
    '{"title": "The Sunken Letter", "year": 2016, "rating":',
)
"""What is computed. Of text, rounding changes the logits of a trained network by a few per cent; of
arbitrary tokens it can change all of them."""
SHORTEST, LONGEST = 8, 12
"""Tokens of a probe."""
MOST_APART = {torch.float32: 1e-3}
MOST_APART_ROUNDED = 0.3
"""Beyond this distance something else is computed. Rounding may send a token to other experts."""

NARROW = 4
"""Tokens of a limit when it is tried; the network's own are longer than the prompt."""
LIMITS = {
    "sliding_window": "its sliding windows hide other tokens than the engine's",
    "keep_window_size": "its masks depend on the tokens",
    "floor_scale": "its queries grow with positions that it counts by itself",
}
"""Attributes that change attention after so many tokens, and what is wrong if ours differs then."""


class Probe(NamedTuple):
    """A short prompt, and its last logits by the network's own attention.

    ids: (tokens,). whole: (vocabulary,) logits. narrow: with a limit of NARROW tokens, for each of
    LIMITS that the network has.
    """

    ids: TokenIds
    whole: Tensor
    narrow: dict[str, Tensor]


def own_logits(network: PreTrainedModel, tokenizer: Tokenizer) -> list[Probe]:
    """Probes by the attention that the network has now."""
    given = _prompts(network, tokenizer)
    whole = [_last(network, ids) for ids in given]
    narrow: list[dict[str, Tensor]] = [{} for _ in given]
    for limit in LIMITS:
        with _narrowed(network, limit) as is_there:
            if is_there:
                for probe, ids in zip(narrow, given, strict=True):
                    probe[limit] = _last(network, ids)
    return [Probe(*each) for each in zip(given, whole, narrow, strict=True)]


@torch.inference_mode()
def _last(network: PreTrainedModel, ids: TokenIds) -> Tensor:
    """The last logits (vocabulary,) of a prompt, by the network's own attention."""
    given = torch.from_numpy(ids).long()[None].to(network.device)
    return _centred(network(input_ids=given, use_cache=False).logits[0, -1])


def _most_apart(network: PreTrainedModel) -> float:
    return MOST_APART.get(network.dtype, MOST_APART_ROUNDED)


def check_same(network: PreTrainedModel, probes: Sequence[Probe], context: int | None) -> None:
    """Run the probes on our attention function. Raises UnsupportedNetworkError if it differs.

    probes: what `own_logits` gave before. context: positions that will be used, in tokens.
    """
    with watch_calls() as watched:
        apart = distance(Forward(network), probes)
    for size in sorted(watched.asked - watched.used if _has_limits(network) else ()):
        if context is None or size < context:
            raise UnsupportedNetworkError(
                f"its attention is limited to {size} tokens in a way that the engine does not "
                "support."
            )
    if isnan(apart):  # torch's attention can drop a NaN that ours keeps
        raise not_finite(network)
    if not apart <= _most_apart(network):
        raise UnsupportedNetworkError(
            "its layers compute something else than the attention that the engine supports; its "
            f"logits would be off by {apart:.1%}."
        )
    for limit in probes[0].narrow:
        with _narrowed(network, limit):
            apart = distance(Forward(network), probes, limit)
        if not apart <= _most_apart(network):
            raise UnsupportedNetworkError(
                f"{LIMITS[limit]}; its logits would be off by {apart:.1%}."
            )


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


def distance(forward: Forward, probes: Sequence[Probe], limit: str | None = None) -> float:
    """How far a forward pass is from a network's own in the probe where it is furthest: of the
    logits' difference, relative to their size. NaN if any logits are not finite.

    limit: of LIMITS, with which the network's own are to be compared.
    """
    own = [probe.whole if limit is None else probe.narrow[limit] for probe in probes]
    distances = [
        _apart(_stepwise(forward, probe.ids), each) for probe, each in zip(probes, own, strict=True)
    ]
    return max(distances, key=lambda apart: float("inf") if isnan(apart) else apart)


@torch.inference_mode()
def _stepwise(forward: Forward, ids: TokenIds) -> Tensor:
    """The last logits of a prompt that is computed in three steps, the last of which decodes."""
    network, cache = forward.network, KVCache(len(ids))
    slots, last = np.arange(len(ids)), torch.empty(0)
    for start, stop in pairwise((0, len(ids) // 2 + 1, len(ids) - 1, len(ids))):
        seen = (Segment(slots[:start]),) if start else ()
        chunk = Chunk(0, ids[start:stop], start, seen, slots[start:stop])
        batch = PackedBatch([chunk], cache, share=True, device=network.device)
        last = forward(chunk.tokens.astype(np.int64), batch, [stop - start - 1])[-1]
    return _centred(last)


def _apart(logits: Tensor, own: Tensor) -> float:
    size_of = torch.linalg.vector_norm
    return float(size_of(logits - own)) / max(float(size_of(own)), 1e-9)


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


def _prompts(network: PreTrainedModel, tokenizer: Tokenizer) -> list[TokenIds]:
    """The probes' tokens: of TEXTS, or else from the middle of the vocabulary."""
    size = int(network.config.get_text_config().vocab_size)
    cut = [tokenizer.encode_whole(text)[:LONGEST] for text in TEXTS]
    known = [ids for ids in cut if len(ids) >= SHORTEST and max(ids) < size]
    if known:
        return [np.array(ids, dtype=np.int32) for ids in known]
    return [(size // 4 + np.arange(LONGEST) * 7919 % max(size // 2, 1)).astype(np.int32)]


def _centred(logits: Tensor) -> Tensor:
    """What matters of logits: their differences."""
    logits = logits.float()
    return logits - logits.mean()
