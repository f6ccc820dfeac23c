"""Recorded steps compute what the network computes, whatever steps were before."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np
import pytest
import torch
import transformers as tf

from relquery.engine.executor import Chunk, Segment
from relquery.model.attention.batch import PackedBatch
from relquery.model.cache.device import KVCache
from relquery.model.forward import recorded
from relquery.model.forward.llama import LlamaForward
from relquery.model.kernels.program import can_run
from relquery.model.networks.load import prepare
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
    "biases": lambda: tf.Qwen2ForCausalLM(tf.Qwen2Config(**SIZES)),
    "normalized heads": lambda: tf.Qwen3ForCausalLM(tf.Qwen3Config(**SIZES, head_dim=32)),
}
MOST = recorded.MOST
CPU = torch.device("cpu")

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


class Decoding:
    """Prompts that share a beginning, in one cache, of which some get a token at each step."""

    def __init__(self, network: Any, forward: LlamaForward, prompts: int, seed: int) -> None:
        self.network, self.forward = network, forward
        self.random = np.random.default_rng(seed)
        shared = self.draw(self.random.integers(0, 30))
        self.ids = [shared + self.draw(self.random.integers(1, 12)) for _ in range(prompts)]
        self.shared = len(shared)
        room = 60
        self.cache = KVCache(self.shared + prompts * room)
        order = self.random.permutation(self.cache.slots)
        own = order[self.shared :].reshape(prompts, room)
        self.slots = [np.concatenate([order[: self.shared], each]) for each in own]
        for number, ids in enumerate(self.ids):
            start = self.shared if number else 0
            self.compute([self.chunk(number, start, ids)])

    def draw(self, count: int) -> list[int]:
        return cast("list[int]", self.random.integers(3, 128, count).tolist())

    def chunk(self, number: int, start: int, ids: list[int]) -> Chunk:
        slots = self.slots[number]
        context = (Segment(slots[:start]),) if start else ()
        tokens = np.array(ids[start:], dtype=np.int32)
        return Chunk(number, tokens, start, context, slots[start : len(ids)])

    def compute(self, chunks: list[Chunk]) -> torch.Tensor:
        batch = PackedBatch(chunks, self.cache, True, CPU)
        tokens = np.concatenate([each.tokens for each in chunks]).astype(np.int64)
        return self.forward(tokens, batch, list(range(len(tokens))))

    def step(self, count: int) -> None:
        """Give some prompts a token, and compare their logits with the network's own."""
        chosen = self.random.permutation(len(self.ids))[:count]
        for number in chosen:
            self.ids[number] += self.draw(1)
        found = self.compute(
            [self.chunk(each, len(self.ids[each]) - 1, self.ids[each]) for each in chosen]
        )
        for logits, number in zip(found, chosen, strict=True):
            expected = self.network(torch.tensor([self.ids[number]]), use_cache=False).logits[0, -1]
            room = 5e-5 * float(expected.abs().max())
            torch.testing.assert_close(logits, expected, rtol=0, atol=room)


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
