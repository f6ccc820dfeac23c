"""Recorded steps compute what the network computes, whatever steps were before."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np
import pytest
import torch
import transformers as tf

from relquery.engine.executor import Chunk
from relquery.model.attention.batch import PackedBatch
from relquery.model.cache.device import KVCache
from relquery.model.forward import recorded
from relquery.model.forward.llama import LlamaForward
from relquery.model.kernels.program import can_run
from relquery.model.networks.load import prepare
from tests.model.forward.decoding import Decoding
from tests.model.oracle.architectures import LLAMA_LIKE, NoTokenizer

# Our products take weights whose outputs are multiples of 64.
SIZES: dict[str, Any] = {
    **LLAMA_LIKE,
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
NETWORKS: dict[str, Callable[[], Any]] = {
    "llama": lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**SIZES)),
    "a window": lambda: tf.MistralForCausalLM(tf.MistralConfig(**SIZES, sliding_window=9)),
    "gates of whole panels": lambda: tf.LlamaForCausalLM(
        tf.LlamaConfig(**{**SIZES, "intermediate_size": 128})
    ),
    "biases": lambda: tf.Qwen2ForCausalLM(tf.Qwen2Config(**SIZES)),
    "normalized heads": lambda: tf.Qwen3ForCausalLM(tf.Qwen3Config(**SIZES, head_dim=32)),
}
MOST = recorded.MOST

pytestmark = pytest.mark.skipif(not can_run(), reason="torch has no OpenMP here")


def built(name: str) -> Any:
    torch.manual_seed(0)
    network = NETWORKS[name]().eval()
    with torch.no_grad():
        for part, weight in network.named_parameters():
            weight.copy_(torch.rand_like(weight) + 0.5 if "norm" in part else 3 * weight)
            if part.endswith("bias"):
                weight.normal_()
    return network


def ready(name: str) -> tuple[Any, LlamaForward]:
    forward = prepare(built(name), cast(Any, NoTokenizer()), name).forward
    assert isinstance(forward, LlamaForward)
    return built(name), forward


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one at each run of a recorded step."""
    count: list[int] = []
    run = recorded.Program.run
    monkeypatch.setattr(
        recorded.Program, "run", lambda self, inputs: (count.append(1), run(self, inputs))
    )
    return count


@pytest.mark.parametrize("name", NETWORKS)
@torch.inference_mode()
def test_steps_of_any_size_follow_one_another(name: str, runs: list[int]) -> None:
    decoding = Decoding(*ready(name), prompts=MOST, seed=1)
    before = len(runs)
    for count in (1, 1, 7, MOST, 3, 64, 33, 2):
        decoding.step(count)
    assert len(runs) == before + 8


@torch.inference_mode()
def test_caches_and_threads_may_change(runs: list[int]) -> None:
    network, forward = ready("llama")
    before = torch.get_num_threads()
    try:
        one, other = (Decoding(network, forward, 5, seed) for seed in (2, 3))
        for threads in (1, 3, 2):
            torch.set_num_threads(threads)
            for decoding in (one, other, one):
                decoding.step(4)
    finally:
        torch.set_num_threads(before)
    assert len(runs) >= 9


@torch.inference_mode()
def test_engines_in_several_threads_do_not_disturb_each_other() -> None:
    network, forward = ready("llama")
    decodings = [Decoding(network, forward, 6, seed) for seed in range(3)]

    @torch.inference_mode()
    def decode(decoding: Decoding) -> None:
        for count in (1, 6, 2, 5, 1, 4):
            decoding.step(count)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(decode, decodings))


@torch.inference_mode()
def test_a_step_with_more_tokens_is_computed_as_always(runs: list[int]) -> None:
    decoding = Decoding(*ready("llama"), prompts=MOST + 1, seed=4)
    before = len(runs)
    decoding.step(MOST + 1)
    assert len(runs) == before


@torch.inference_mode()
def test_a_recorded_step_does_not_keep_a_cache() -> None:
    network, forward = ready("llama")
    Decoding(network, forward, 2, 5).step(2)
    assert forward._recorded is not None
    assert forward._recorded._cache() is None


@pytest.mark.parametrize("token", [-1, SIZES["vocab_size"], 10**6])
@torch.inference_mode()
def test_a_token_that_the_network_does_not_have_is_refused(token: int) -> None:
    _, forward = ready("llama")
    cache = KVCache(4)
    slots = np.arange(1)
    chunk = Chunk(0, np.array([token], np.int32), 0, (), slots)
    batch = PackedBatch([chunk], cache, share=True, device=torch.device("cpu"))
    with pytest.raises(IndexError):
        forward(chunk.tokens.astype(np.int64), batch, [0])
    again = Chunk(0, np.array([3], np.int32), 0, (), slots)
    batch = PackedBatch([again], cache, share=True, device=torch.device("cpu"))
    forward(again.tokens.astype(np.int64), batch, [0])
    with pytest.raises(IndexError):  # by the recorded step
        forward(chunk.tokens.astype(np.int64), batch, [0])
