"""The dense reference for spans agrees with the stock network wherever that can say something."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from relquery.arrays import TokenIds
from tests.model.oracle.architectures import VOCABULARY, build, quick_of
from tests.model.oracle.dense import dense_logits, flat_tokens, visible_tokens

# With windows of 16 tokens: Gemma 3 in one of its layers, Mistral in all.
NAMES = ["gemma3", "bloom", "mpt", "llama", "qwen3", "mistral", "gpt2", "opt"]


def some_tokens(count: int, seed: int = 0) -> TokenIds:
    return np.random.default_rng(seed).integers(3, VOCABULARY, count).astype(np.int32)


@torch.inference_mode()
def plain_logits(network: Any, tokens: TokenIds) -> torch.Tensor:
    """The stock network's own causal forward pass."""
    return network(input_ids=torch.from_numpy(tokens).long()[None], use_cache=False).logits[0]  # type: ignore[no-any-return]


def same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6 * float(expected.abs().max()))


@quick_of(NAMES, "gemma3", "bloom", "mpt")
def test_chains_are_the_plain_pass_where_nothing_is_hidden(name: str) -> None:
    network, tokens, span = build(name), some_tokens(40), some_tokens(23)
    expected = plain_logits(network, tokens)
    same(dense_logits(network, (tokens,)), expected)
    before = network.config._attn_implementation
    attributes = {name: dir(module) for name, module in network.named_modules()}
    same(dense_logits(network, (tokens[:7], tokens[7:])), expected)
    # With one token, the nested chain is computed as it would be in the outer chain.
    same(dense_logits(network, ((tokens[:1],), tokens[1:])), expected)
    logits = dense_logits(network, ((span,), some_tokens(9, seed=1)))
    same(logits[:23], plain_logits(network, span))
    assert network.config._attn_implementation == before
    assert {name: dir(module) for name, module in network.named_modules()} == attributes


def test_positions_count_the_tokens_of_nested_chains() -> None:
    network = build("gpt2")  # its embeddings tell positions even to a chain of one token
    token = some_tokens(1)
    logits = dense_logits(network, ((some_tokens(5, 1),), (some_tokens(2, 2),), (token,)))
    with torch.inference_mode():
        ids = torch.from_numpy(token).long()[None]
        expected = network(input_ids=ids, position_ids=torch.tensor([[7]]), use_cache=False)
    same(logits[7:], expected.logits[0])


def test_masks_of_nested_chains() -> None:
    a = np.arange(1, dtype=np.int32)
    chain = (a, (a, (a,), a), a)
    assert visible_tokens(chain).int().tolist() == [
        [1, 0, 0, 0, 0],
        [0, 1, 0, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 1, 1, 1, 0],
        [1, 1, 1, 1, 1],
    ]
    assert visible_tokens(chain, window=2).int().tolist() == [
        [1, 0, 0, 0, 0],
        [0, 1, 0, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 1, 1, 0],
        [0, 0, 0, 1, 1],
    ]
    assert len(flat_tokens(chain)) == 5
    assert visible_tokens(()).shape == (0, 0)
