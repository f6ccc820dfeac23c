"""Prompts whose dropped states are read from host memory, against the stock network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest
import torch

from relquery.engine.executor import Chunk, Drawn
from relquery.engine.request.request import Request
from relquery.engine.request.rules import Rules
from relquery.model.cache.device import KVCache
from relquery.model.cache.host import HostCache, Run, runs
from relquery.model.torch_executor import TorchExecutor
from tests.model.oracle.architectures import engine_of, failing_second_layer, model_of, quick_of
from tests.model.test_scored import ARCHITECTURES, COMMON, END, LABELS, reference, words

LONG = words(45)
PROMPTS = [(*LONG, *words(4)), (*LONG, *words(9)), (*LONG, *words(2))]
Prompt = tuple[int, ...]


class Counted(TorchExecutor):
    """Counts the tokens that it computes and loads."""

    computed = loaded = 0

    def execute(self, chunks: Sequence[Chunk]) -> list[Drawn | None]:
        self.computed += sum(len(chunk.tokens) for chunk in chunks)
        self.loaded += sum(len(c.loads.slots) for c in chunks if c.loads is not None)
        return super().execute(chunks)


class Engine:
    """Four blocks on the device, twenty on the host, all prompts scored.

    held: blocks that a test has taken away.
    """

    held = 0

    def __init__(self, name: str, slice_tokens: int = 2_048, **limits: Any) -> None:
        self.name = name
        given = {"cache_tokens": 16, "host_tokens": 80, "block_size": 4, "max_input": 64}
        given |= {"max_num_batched_tokens": 256, "slice_tokens": slice_tokens}
        self.loop = engine_of(model_of(name)[0], Counted, **given | limits)
        self.executor = cast(Counted, self.loop._executor)

    def check(self, *prompts: Prompt) -> list[Request]:
        """Score prompts, together if there is room, and compare them with the stock network's."""
        requests = [
            Request(i, np.array(prompt, np.int32), 1, rules=Rules(END, LABELS), scored=True)
            for i, prompt in enumerate(prompts)
        ]
        for request in requests:
            self.loop.submit(request)
        while self.loop.waiting or self.loop.running:
            self.loop.step()
            for pool in (self.loop.pool, self.loop.host):
                pool.check()
                assert pool.held == (self.held if pool is self.loop.pool else 0)
        for request, prompt in zip(requests, prompts, strict=True):
            assert request.scores == pytest.approx(reference(self.name, prompt), abs=1e-5)
        return requests


def labels() -> int:
    """Tokens that weighing the labels takes."""
    labels = Request(0, np.zeros(1, np.int32), 1, rules=Rules(END, LABELS), scored=True).trie
    assert labels is not None
    return labels.tokens


@quick_of(ARCHITECTURES, "llama", "gemma3", "gpt2", "bloom")
def test_loaded_states_change_no_score_and_are_not_computed(name: str) -> None:
    for slice_tokens in (1, 7, 16, 2_048) if name == "gemma3" else (2_048,):
        engine = Engine(name, slice_tokens)
        cached = [engine.check(prompt)[0].cached for prompt in PROMPTS]
        assert cached == [0, 44, 44]
        assert engine.executor.computed == 49 + 10 + 3 + 3 * labels()
        assert engine.executor.loaded == 2 * (44 - 16)


@pytest.mark.parametrize(
    ("name", "slice_tokens"),
    [("llama", 5), ("gpt2", 17), ("gemma3", 40), ("bloom", 2_048), ("llama", 2_048)],
)
def test_requests_of_a_step_each_load_their_own(name: str, slice_tokens: int) -> None:
    engine = Engine(name, slice_tokens, host_tokens=160)
    others = [(*words(37), 5), (*words(30), 6)]
    engine.check(PROMPTS[0])
    engine.check(*others)
    before = engine.executor.computed
    again = [(*other[:-1], 9, 8) for other in others]
    requests = engine.check(*PROMPTS[1:], (3, *words(20)), *again)
    assert [request.cached for request in requests] == [44, 44, 0, 36, 28]
    assert engine.executor.computed - before == 10 + 3 + 21 + 3 + 4 + 5 * labels()


@pytest.mark.parametrize(("name", "slice_tokens"), [("gpt2", 2_048), ("gemma2", 7), ("llama", 1)])
def test_what_is_loaded_into_the_cache_serves_others(name: str, slice_tokens: int) -> None:
    engine = Engine(name, slice_tokens, cache_tokens=48)
    engine.check(PROMPTS[0])
    engine.loop.pool.evict(12)
    assert [each.cached for each in engine.check(*PROMPTS)] == [48, 44, 44]
    assert engine.executor.loaded == 48
    assert [each.cached for each in engine.check(*PROMPTS)] == [48, 52, 44]
    assert engine.executor.loaded == 48 + 8


@pytest.mark.parametrize("slice_tokens", [7, 2_048])
def test_the_first_keys_in_the_cache_may_come_from_the_host(slice_tokens: int) -> None:
    engine = Engine("llama", slice_tokens)
    blocks = engine.loop.pool.allocate(4)
    assert blocks is not None
    engine.held = 4
    engine.check(PROMPTS[0])
    engine.held = 0
    engine.loop.pool.release(blocks)
    assert [each.cached for each in engine.check(*PROMPTS[1:])] == [44, 44]


@pytest.mark.parametrize(
    "limits", [{"segment_sharing": False}, {"block_size": 1}, {"max_num_seqs": 1}]
)
def test_scores_are_the_same_in_other_settings(limits: dict[str, Any]) -> None:
    engine = Engine("gemma2", 16, **limits)
    engine.check(PROMPTS[0])
    engine.check(*PROMPTS)
    assert engine.executor.loaded > 0


def test_what_is_saved_grows_with_what_comes() -> None:
    engine = Engine("llama", 16)
    lengths = [20, 33, 49]
    cached = [engine.check(PROMPTS[0][:length])[0].cached for length in lengths]
    assert cached == [0, 20, 32]
    assert engine.executor.computed == 49 + 1 + 3 * labels()


def test_after_eviction_from_the_host_it_is_computed_again() -> None:
    engine = Engine("llama")
    engine.check(PROMPTS[0])
    for _ in range(2):
        engine.check((*words(62), 4))
    (again,) = engine.check(PROMPTS[1])
    assert (again.cached, engine.executor.loaded) == (0, 0)


def test_without_host_memory_all_is_computed() -> None:
    engine = Engine("llama", host_tokens=0)
    cached = [engine.check(prompt)[0].cached for prompt in PROMPTS]
    assert cached == [0, 16, 16]
    assert engine.executor.loaded == 0


@pytest.mark.parametrize("slice_tokens", [7, 2_048])
def test_a_step_that_fails_between_two_layers_saves_nothing(slice_tokens: int) -> None:
    engine = Engine("llama", slice_tokens)
    engine.check(COMMON)
    prompt = (*COMMON, *words(30))
    request = Request(9, np.array(prompt, np.int32), 1, rules=Rules(END, LABELS), scored=True)
    engine.loop.submit(request)
    with failing_second_layer(), pytest.raises(KeyboardInterrupt):
        engine.loop.step()
    assert engine.loop.cancel(request)
    engine.loop.host.check()
    assert engine.loop.host.available == 20
    assert [engine.check(prompt)[0].cached for _ in range(2)] == [20, 48]


# ---- the cache on the host


def test_runs_are_of_tokens_that_follow_one_another_on_both_sides() -> None:
    host, here = np.array([4, 5, 6, 7, 0, 1]), np.array([0, 1, 2, 5, 6, 7])
    assert list(runs(host, here)) == [Run(4, 0, 3), Run(7, 5, 1), Run(0, 6, 2)]
    assert list(runs(host[:0], here[:0])) == []


def test_a_saved_token_is_the_same_when_it_is_loaded() -> None:
    host, target = HostCache(8), KVCache(6, keeps=False)
    for layer in range(3):
        key, value = torch.randn(5, 2, 4 + layer), torch.randn(5, 2, 3)
        host.save(layer, Run(2, 1, 3), key, value)
        target.write(layer, torch.arange(2), key[:2], value[:2])
        host.begin_load(layer, Run(3, 4, 2), target.prepare(layer, key, value))
        host.end_load(layer)
        keys, values = target.read_run(layer, torch.tensor([4, 5]))
        assert torch.equal(keys, key[2:4])
        assert torch.equal(values, value[2:4])
