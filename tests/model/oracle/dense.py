"""The dense reference for spans: the stock network under an explicit mask.

A request is a *chain*: a tuple of token arrays and of chains nested in it. A token sees every
earlier token of its own chain, those of chains nested in it included, and nothing outside its own
chain. Positions count tokens in document order, nested ones too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from transformers import BloomForCausalLM
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

from relquery.arrays import TokenIds

Chain: TypeAlias = "tuple[TokenIds | Chain, ...]"


def flat_tokens(chain: Chain) -> TokenIds:
    """(tokens,) of a chain in document order."""
    parts = [flat_tokens(part) if isinstance(part, tuple) else part for part in chain]
    return np.concatenate([np.empty(0, dtype=np.int32), *parts])


def starts(chain: Chain, at: int = 0) -> list[int]:
    """By token: where its own chain starts. at: position of the chain's first token."""
    found: list[int] = []
    for part in chain:
        if isinstance(part, tuple):
            found += starts(part, at + len(found))
        else:
            found += [at] * len(part)
    return found


def visible_tokens(chain: Chain, window: int | None = None) -> Tensor:
    """(tokens, tokens) booleans, [query, key]; window: the query's own position included.

    What a token sees is one run of the document: from the start of its own chain to itself.
    """
    start = torch.tensor(starts(chain))
    at = torch.arange(len(start))
    seen = (at[None, :] >= start[:, None]) & (at[None, :] <= at[:, None])
    return _within(seen, window)


def _within(visible: Tensor, window: int | None) -> Tensor:
    """What is visible no further back than the window, counted in the document."""
    if window is None:
        return visible
    at = torch.arange(len(visible))
    return visible & (at[:, None] - at[None, :] < window)


def dense_logits(network: Any, chain: Chain) -> Tensor:
    """(tokens, vocabulary) logits of the stock network. network: as built, in float32."""
    return masked_logits(network, flat_tokens(chain), visible_tokens(chain))


@torch.inference_mode()
def masked_logits(network: Any, tokens: TokenIds, visible: Tensor) -> Tensor:
    """The same for tokens and what each of them sees, (tokens, tokens) [query, key]."""
    ids = torch.from_numpy(tokens).long()[None]
    with _stock(network, len(tokens)):
        output = network(
            input_ids=ids,
            attention_mask=_mask(network.config, visible),
            position_ids=torch.arange(len(tokens))[None],
            use_cache=False,
        )
    logits: Tensor = output.logits[0]
    return logits


def _mask(config: Any, visible: Tensor) -> Tensor | dict[str, Tensor]:
    """The prepared mask, (1, 1, tokens, tokens); by layer type where a network has several."""
    window = getattr(config, "sliding_window", None)
    if "sliding_attention" in (getattr(config, "layer_types", None) or ()):
        return {
            "full_attention": _additive(visible),
            "sliding_attention": _additive(_within(visible, window)),
        }
    return _additive(_within(visible, window))


def _additive(visible: Tensor) -> Tensor:
    return torch.zeros(visible.shape).masked_fill(~visible, -torch.inf)[None, None]


@contextmanager
def _stock(network: Any, tokens: int) -> Iterator[None]:
    """The network on its own eager attention, which adds a prepared mask as it is."""
    if isinstance(network, BloomForCausalLM):
        with _alibi_by_document(network.transformer, tokens):
            yield
        return
    ours = network.config._attn_implementation
    if ours != "eager":
        network.set_attn_implementation("eager")
    try:
        yield
    finally:
        if ours != "eager":
            network.set_attn_implementation(ours)


@contextmanager
def _alibi_by_document(decoder: Any, tokens: int) -> Iterator[None]:
    """Bloom counts positions in the mask, which must then have two dimensions: count them here.

    Its biases grow with the key's position alone, which the softmax makes a distance.
    """

    def build(mask: Tensor, heads: int, dtype: torch.dtype) -> Tensor:
        assert mask.dim() == 4
        return build_alibi_tensor(torch.ones(1, tokens), heads, dtype)

    decoder.build_alibi_tensor = build
    try:
        yield
    finally:
        del decoder.build_alibi_tensor
