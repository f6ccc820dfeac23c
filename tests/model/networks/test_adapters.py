"""Networks with an adapter compute on our attention function what they compute on their own."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from relquery.arrays import TokenIds
from relquery.engine.executor import Chunk, Segment
from relquery.errors import ModelError
from relquery.model.attention.batch import PackedBatch
from relquery.model.cache.device import KVCache
from relquery.model.networks.adapters.adapt import adapt
from tests.model.oracle.architectures import FALCON, NETWORKS, VOCABULARY, build, quick_of

SLOTS = 400
REST = ["bloom", *FALCON]
FEW = ["bloom", "mpt", "falcon_grouped"]
MORE = ["falcon", "falcon_many"]
CPU = torch.device("cpu")


def some_tokens(count: int, seed: int = 0) -> TokenIds:
    return np.random.default_rng(seed).integers(3, VOCABULARY, count).astype(np.int32)


def chunk_of(tokens: TokenIds, slots: Sequence[int], start: int, request: int = 0) -> Chunk:
    """Computes the tokens from `start` on; what is before is context."""
    at = np.asarray(slots, dtype=np.int64)
    context = (Segment(at[:start]),) if start else ()
    return Chunk(request, tokens[start : len(at)], start, context, at[start:])


@torch.inference_mode()
def step(network: Any, chunks: Sequence[Chunk], cache: KVCache) -> torch.Tensor:
    """(tokens, vocabulary) logits of a packed batch."""
    batch = PackedBatch(chunks, cache, share=True, device=CPU)
    ids = np.concatenate([chunk.tokens for chunk in chunks]).astype(np.int64)
    output = network(
        input_ids=torch.from_numpy(ids)[None],
        position_ids=torch.from_numpy(batch.positions)[None],
        use_cache=False,
        batch=batch,
    )
    return output.logits[0]  # type: ignore[no-any-return]


@torch.inference_mode()
def stock(network: Any, tokens: TokenIds) -> torch.Tensor:
    return network(input_ids=torch.from_numpy(tokens).long()[None], use_cache=False).logits[0]  # type: ignore[no-any-return]


def same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


@pytest.fixture(
    scope="module", params=[*FEW, *(pytest.param(n, marks=pytest.mark.long) for n in MORE)]
)
def pair(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """The stock network, and the same one adapted."""
    adapted = build(request.param)
    assert adapt(adapted)
    return build(request.param), adapted


def test_requests_packed_into_one_pass_do_not_see_each_other(pair: tuple[Any, Any]) -> None:
    network, adapted = pair
    first, second = some_tokens(30), some_tokens(20, 1)
    chunks = [chunk_of(first, range(30), 0), chunk_of(second, range(30, 50), 0, request=1)]
    logits = step(adapted, chunks, KVCache(SLOTS))
    same(logits[:30], stock(network, first))
    same(logits[30:], stock(network, second))


def test_a_shared_prefix_is_read_from_the_cache(pair: tuple[Any, Any]) -> None:
    network, adapted = pair
    common = some_tokens(25)
    prompts = [np.concatenate((common, some_tokens(n, n))) for n in (1, 4, 9)]
    cache = KVCache(SLOTS)
    step(adapted, [chunk_of(common, range(25), 0)], cache)
    chunks = [
        chunk_of(prompt, [*range(25), *range(50 * i, 50 * i + len(prompt) - 25)], 25, request=i)
        for i, prompt in enumerate(prompts, start=1)
    ]
    logits = torch.split(step(adapted, chunks, cache), [1, 4, 9])
    for prompt, own in zip(prompts, logits, strict=True):
        same(own, stock(network, prompt)[25:])


def test_a_prompt_computed_token_by_token_is_the_same(pair: tuple[Any, Any]) -> None:
    network, adapted = pair
    tokens, cache = some_tokens(12), KVCache(SLOTS)
    logits = [step(adapted, [chunk_of(tokens, range(n + 1), n)], cache) for n in range(12)]
    same(torch.cat(logits), stock(network, tokens))


def test_an_adapted_network_says_when_it_runs_without_a_batch(pair: tuple[Any, Any]) -> None:
    with pytest.raises(ModelError, match="batch"):
        stock(pair[1], some_tokens(3))


def test_a_batch_is_forgotten_when_the_pass_fails(pair: tuple[Any, Any]) -> None:
    adapted = pair[1]
    cache = KVCache(1)
    with pytest.raises((IndexError, RuntimeError)):
        step(adapted, [chunk_of(some_tokens(3), range(3), 0)], cache)  # slots that do not exist
    assert all(getattr(module, "batch", None) is None for module in adapted.modules())


@quick_of(["mpt", *REST], "mpt")
def test_no_batch_outlives_its_pass(name: str) -> None:
    adapted, cache = build(name), KVCache(SLOTS)
    assert adapt(adapted)
    step(adapted, [chunk_of(some_tokens(3), range(3), 0)], cache)
    gone = weakref.ref(cache)
    del cache
    gc.collect()
    assert gone() is None


def test_networks_that_take_an_attention_function_need_no_adapter() -> None:
    assert not any(adapt(build(name)) for name in NETWORKS)
