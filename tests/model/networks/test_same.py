"""A network that would answer otherwise than on its own is refused, whatever it is called."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf

from relquery.engine.executor import Chunk
from relquery.errors import ModelError
from relquery.model.networks.random import RandomSpec, train_tokenizer
from relquery.model.text.tokenizer import Tokenizer
from relquery.model.torch_runtime.adapters import adapt
from relquery.model.torch_runtime.attention import PackedBatch
from relquery.model.torch_runtime.cache import KVCache
from relquery.model.torch_runtime.load import random_network
from relquery.model.torch_runtime.same import LONGEST, TEXTS, own_logits
from tests.model.oracle.architectures import (
    ALIBI,
    ALL,
    CONTEXT,
    FALCON,
    LLAMA_LIKE,
    NETWORKS,
    WHY_REFUSED,
    build,
    networks_of,
    prepared,
    quick_of,
)

REFUSED = networks_of("refused")


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_engine_does_not_know_is_refused(name: str) -> None:
    torch.manual_seed(1)
    network = REFUSED[name]().eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(0, 0.2)
    with pytest.raises(ModelError, match=WHY_REFUSED[name]):
        prepared(network, name)


def test_an_untrained_network_whose_masks_depend_on_the_tokens_is_refused() -> None:
    torch.manual_seed(1)
    network = tf.DogeForCausalLM(tf.DogeConfig(**LLAMA_LIKE, keep_window_size=16))
    with pytest.raises(ModelError, match="its masks depend on the tokens"):
        prepared(network, "Doge")


@pytest.mark.parametrize("make", networks_of("accepted").values())
def test_limits_that_no_layer_has_or_that_are_beyond_the_context_limit_nothing(make: Any) -> None:
    assert prepared(make().eval(), "whole").context == CONTEXT


@quick_of(ALL, "llama", "gemma2", "bloom")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rounding_is_no_reason_to_refuse(name: str, dtype: torch.dtype) -> None:
    network = build(name).to(dtype)
    assert prepared(network, name).network is network


@pytest.mark.parametrize("kind", ["mistral", "gemma2", "gemma3"])
def test_windows_are_tried_although_the_prompt_is_shorter(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    attend = PackedBatch.attend

    def wider(batch: PackedBatch, *args: Any, window: int | None = None, **kwargs: Any) -> Any:
        return attend(batch, *args, window=window and window + 1, **kwargs)

    network = build(kind)
    assert prepared(network, kind).network.config.sliding_window == 16
    monkeypatch.setattr(PackedBatch, "attend", wider)
    with pytest.raises(ModelError, match="sliding windows hide other tokens"):
        prepared(build(kind), kind)


def words(count: int) -> Tokenizer:
    """A tokenizer of so many tokens, most of them of single characters."""
    return train_tokenizer(("the capital of France is Paris",) * 3, count)


def test_the_probes_are_text_where_the_tokenizer_has_some() -> None:
    network = random_network(RandomSpec(layers=1, hidden=32), words(300), torch.float32)
    given = own_logits(network, words(300))
    assert [words(300).decode(probe.ids.tolist()) for probe in given] == [
        words(300).decode(words(300).encode_whole(text)[:LONGEST]) for text in TEXTS
    ]
    assert len(own_logits(network, words(9_000))) == 3
    network.config.vocab_size = 20
    assert len(own_logits(network, words(300))) == 1


# ---- networks with an adapter: compared with the stock ones in test_scored


def three_tokens(network: Any, cache: KVCache) -> None:
    """Compute three tokens."""
    slots = np.arange(3)
    chunk = Chunk(0, slots.astype(np.int32) + 5, 0, (), slots)
    batch = PackedBatch([chunk], cache, share=True, device=torch.device("cpu"))
    ids = torch.from_numpy(chunk.tokens).long()[None]
    positions = torch.from_numpy(batch.positions)[None]
    with torch.inference_mode():
        network(input_ids=ids, position_ids=positions, use_cache=False, batch=batch)


@quick_of([*ALIBI, *FALCON], "bloom", "mpt", "falcon_grouped")
def test_a_pass_says_that_it_lacks_a_batch_and_forgets_one_when_it_fails(name: str) -> None:
    adapted = build(name)
    assert adapt(adapted)
    with pytest.raises(ModelError, match="batch"):
        adapted(input_ids=torch.tensor([[3, 4, 5]]), use_cache=False)
    with pytest.raises((IndexError, RuntimeError)):
        three_tokens(adapted, KVCache(1))  # slots that do not exist
    assert all(getattr(module, "batch", None) is None for module in adapted.modules())


@quick_of([*ALIBI, *FALCON], "mpt")
def test_no_batch_outlives_its_pass(name: str) -> None:
    adapted, cache = build(name), KVCache(9)
    assert adapt(adapted)
    three_tokens(adapted, cache)
    gone = weakref.ref(cache)
    del cache
    gc.collect()
    assert gone() is None


def test_networks_that_take_an_attention_function_need_no_adapter() -> None:
    assert not any(adapt(build(name)) for name in NETWORKS)
