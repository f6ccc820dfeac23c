"""The dense reference for spans agrees with the stock network wherever that can say something."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from relquery.arrays import TokenIds
from tests.model.oracle.architectures import VOCABULARY, build
from tests.model.oracle.dense import Chain, dense_logits, flat_tokens, visible_tokens

# With windows of 16 tokens: Gemma 3 in one of its layers, Mistral in all.
FEW = ["gemma3", "bloom", "mpt"]
MORE = ["llama", "qwen3", "mistral", "gpt2", "opt"]


@pytest.fixture(
    scope="module", params=[*FEW, *(pytest.param(name, marks=pytest.mark.long) for name in MORE)]
)
def network(request: pytest.FixtureRequest) -> Any:
    return build(request.param)


def some_tokens(count: int, seed: int = 0) -> TokenIds:
    return np.random.default_rng(seed).integers(3, VOCABULARY, count).astype(np.int32)


@torch.inference_mode()
def plain_logits(network: Any, tokens: TokenIds) -> torch.Tensor:
    """The stock network's own causal forward pass."""
    return network(input_ids=torch.from_numpy(tokens).long()[None], use_cache=False).logits[0]  # type: ignore[no-any-return]


def same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6 * float(expected.abs().max()))


def test_chains_are_the_plain_pass_where_nothing_is_hidden(network: Any) -> None:
    tokens, span = some_tokens(40), some_tokens(23)
    expected = plain_logits(network, tokens)
    same(dense_logits(network, (tokens,)), expected)
    same(dense_logits(network, (tokens[:7], tokens[7:])), expected)
    # With one token, the nested chain is computed as it would be in the outer chain.
    same(dense_logits(network, ((tokens[:1],), tokens[1:])), expected)
    logits = dense_logits(network, ((span,), some_tokens(9, seed=1)))
    same(logits[:23], plain_logits(network, span))


def test_a_nested_chain_does_not_see_what_is_outside_it(network: Any) -> None:
    def chain(seed: int) -> Chain:
        span = (some_tokens(8), (some_tokens(5, 1),), some_tokens(6, 2))
        return (some_tokens(11, seed), span, some_tokens(4, seed + 1))

    a, b = dense_logits(network, chain(10)), dense_logits(network, chain(20))
    same(a[11:30], b[11:30])
    assert not torch.allclose(a[30:], b[30:], atol=1e-3)


def test_a_token_sees_its_chain_and_those_nested_in_it(network: Any) -> None:
    def chain(inner: int, sibling: int) -> Chain:
        return (
            some_tokens(3),
            (some_tokens(4, inner), some_tokens(2, 1)),
            (some_tokens(5, sibling),),
        )

    base = dense_logits(network, chain(10, 30))
    other_inner = dense_logits(network, chain(20, 30))
    same(base[:3], other_inner[:3])
    assert not torch.allclose(base[7:9], other_inner[7:9], atol=1e-3)
    same(base[9:], other_inner[9:])
    outer = (*chain(10, 30), some_tokens(2, 3))
    changed = (*chain(20, 30), some_tokens(2, 3))
    assert not torch.allclose(
        dense_logits(network, outer)[14:], dense_logits(network, changed)[14:], atol=1e-3
    )


def test_positions_count_the_tokens_of_nested_chains() -> None:
    network = build("gpt2")  # its embeddings tell positions even to a chain of one token
    token = some_tokens(1)
    logits = dense_logits(network, ((some_tokens(5, 1),), (some_tokens(2, 2),), (token,)))
    with torch.inference_mode():
        ids = torch.from_numpy(token).long()[None]
        expected = network(input_ids=ids, position_ids=torch.tensor([[7]]), use_cache=False)
    same(logits[7:], expected.logits[0])


def test_relative_positions_leave_a_nested_chain_as_it_is_elsewhere() -> None:
    span = some_tokens(20)
    for name in ("llama", "gemma3", "bloom"):
        network = build(name)
        moved = dense_logits(network, (some_tokens(50, 1), (span,)))[50:]
        torch.testing.assert_close(moved, plain_logits(network, span), rtol=1e-3, atol=1e-3)


def test_the_network_is_as_it_was_afterwards(network: Any) -> None:
    before = network.config._attn_implementation
    attributes = {name: dir(module) for name, module in network.named_modules()}
    dense_logits(network, (some_tokens(5),))
    assert network.config._attn_implementation == before
    assert {name: dir(module) for name, module in network.named_modules()} == attributes


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
