"""The dense reference for spans: the stock network under an explicit mask.

A request is a *chain*: a tuple of token arrays and of chains nested in it. A token sees every
earlier token of its own chain, those of chains nested in it included, and nothing outside its own
chain. Positions count tokens in document order, nested ones too, but go on elsewhere after an `At`.
A `Placeholder`'s tokens are seen by those of its own chain alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor
from transformers import BloomForCausalLM, MptForCausalLM
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

from relquery.arrays import TokenIds
from relquery.engine.requests.pieces import At, Placeholder

Chain: TypeAlias = "tuple[TokenIds | Chain | At | Placeholder, ...]"


class Token(NamedTuple):
    """A token in document order.

    path: where its chain is, by part of each chain around it. first: where the chain starts in the
    document.
    """

    id: int
    position: int
    path: tuple[int, ...]
    first: int
    hidden: bool


def tokens_of(
    chain: Chain, begin: int = 0, first: int = 0, path: tuple[int, ...] = ()
) -> tuple[list[Token], int]:
    """The tokens of a chain, and the position after it. begin: the position where it begins."""
    found: list[Token] = []
    at = begin
    for number, part in enumerate(chain):
        match part:
            case At(position):
                at = begin + position
            case tuple():
                inner, at = tokens_of(part, at, first + len(found), (*path, number))
                found += inner
            case _:
                is_hidden = isinstance(part, Placeholder)
                ids = part.tokens if isinstance(part, Placeholder) else part
                found += [
                    Token(int(one), at + i, path, first, is_hidden) for i, one in enumerate(ids)
                ]
                at += len(ids)
    return found, at


def flat_tokens(chain: Chain) -> TokenIds:
    """(tokens,) of a chain in document order."""
    return np.array([token.id for token in tokens_of(chain)[0]], dtype=np.int32)


def visible_tokens(chain: Chain, window: int | None = None) -> Tensor:
    """(tokens, tokens) booleans, [query, key]; window: the query's own position included."""
    tokens, _ = tokens_of(chain)
    seen = torch.zeros(len(tokens), len(tokens), dtype=torch.bool)
    for query, one in enumerate(tokens):
        for key in range(one.first, query + 1):
            other = tokens[key]
            seen[query, key] = not other.hidden or other.path == one.path
    return _within(seen, [token.position for token in tokens], window)


def _within(visible: Tensor, positions: Sequence[int], window: int | None) -> Tensor:
    """What is visible no further back than the window."""
    if window is None:
        return visible
    at = torch.tensor(positions)
    return visible & (at[:, None] - at[None, :] < window)


def dense_logits(network: Any, chain: Chain) -> Tensor:
    """(tokens, vocabulary) logits of the stock network. network: as built, in float32."""
    positions = [token.position for token in tokens_of(chain)[0]]
    return masked_logits(network, flat_tokens(chain), visible_tokens(chain), positions)


@torch.inference_mode()
def masked_logits(
    network: Any, tokens: TokenIds, visible: Tensor, positions: Sequence[int] | None = None
) -> Tensor:
    """The same for tokens and what each of them sees, (tokens, tokens) [query, key]."""
    ids = torch.from_numpy(tokens).long()[None]
    at = list(range(len(tokens))) if positions is None else positions
    if isinstance(network, MptForCausalLM):  # it hides where its mask is true, has no position ids
        given: Any = {"attention_mask": ~visible[None, None]}
    else:
        given = {"attention_mask": _mask(network.config, visible, at)}
        given["position_ids"] = torch.tensor(at)[None]
    with _stock(network, at):
        output = network(input_ids=ids, use_cache=False, **given)
    logits: Tensor = output.logits[0]
    return logits


def _mask(config: Any, visible: Tensor, at: Sequence[int]) -> Tensor | dict[str, Tensor]:
    """The prepared mask, (1, 1, tokens, tokens); by layer type where a network has several."""
    window = getattr(config, "sliding_window", None)
    if "sliding_attention" in (getattr(config, "layer_types", None) or ()):
        return {
            "full_attention": _additive(visible),
            "sliding_attention": _additive(_within(visible, at, window)),
        }
    return _additive(_within(visible, at, window))


def _additive(visible: Tensor) -> Tensor:
    return torch.zeros(visible.shape).masked_fill(~visible, -torch.inf)[None, None]


@contextmanager
def _stock(network: Any, positions: Sequence[int]) -> Iterator[None]:
    """The network on its own eager attention, which adds a prepared mask as it is.

    Bloom counts positions in the mask, which must then have two dimensions, and MPT from the last
    of all that it may have: given here instead. Biases grow with the key's position alone, which
    the softmax makes a distance.
    """

    def bloom(mask: Tensor, heads: int, dtype: torch.dtype) -> Tensor:
        assert mask.dim() == 4
        slopes = build_alibi_tensor(torch.ones(1, 2), heads, dtype)[..., 1:]
        return slopes * torch.tensor(positions, dtype=dtype)

    def mpt(heads: int, length: int, **options: Any) -> Tensor:
        biases: Tensor = build_mpt_alibi_tensor(heads, 2)  # type: ignore[no-untyped-call]
        slopes = biases[..., 1:] - biases[..., :1]
        return slopes * torch.tensor(positions, dtype=slopes.dtype)

    for kind, name, build in (
        (BloomForCausalLM, "build_alibi_tensor", bloom),
        (MptForCausalLM, "build_mpt_alibi_tensor", mpt),
    ):
        if isinstance(network, kind):
            setattr(network.transformer, name, build)
            try:
                yield
            finally:
                delattr(network.transformer, name)
            return
    ours = network.config._attn_implementation
    if ours != "eager":
        network.set_attn_implementation("eager")
    try:
        yield
    finally:
        if ours != "eager":
            network.set_attn_implementation(ours)


def dense_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    visible: Tensor,
    scale: float,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Output (q, heads, head_dim) and log-sum-exp (q, heads).

    query: (q, heads, head_dim); key, value: (k, kv_heads, head_dim); visible: (q, k) booleans.
    """
    query, key, value = query.double(), key.double(), value.double()
    group = query.shape[1] // key.shape[1]
    outputs, lses = [], []
    for head in range(query.shape[1]):
        scores = query[:, head] @ key[:, head // group].T * scale
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        scores = scores.masked_fill(~visible, -torch.inf)
        lses.append(scores.logsumexp(-1))
        weights = scores.softmax(-1).nan_to_num(0.0)
        outputs.append(weights @ value[:, head // group])
    return torch.stack(outputs, 1), torch.stack(lses, 1)


def visible_keys(first: int, queries: int, window: int | None = None) -> Tensor:
    """(queries, first + queries) booleans: causal, and within a sliding window if there is one.

    first: position of the first query; keys begin at position 0.
    """
    query_at = torch.arange(first, first + queries)[:, None]
    key_at = torch.arange(first + queries)[None, :]
    near = query_at - key_at < window if window is not None else True
    return (key_at <= query_at) & near
