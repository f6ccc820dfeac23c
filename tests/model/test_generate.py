"""Greedy output is the one of `transformers`' own generate, token for token, in every setting."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from relquery.arrays import TokenIds
from relquery.backends.local.embedded import EmbeddedBackend
from relquery.config import EngineConfig
from relquery.engine.executor import Chunk, Drawn, Segment
from relquery.engine.requests.request import Draw, Request
from relquery.model.native_model import NativeModel
from relquery.model.native_runtime import _Last
from relquery.model.networks.random import byte_tokenizer
from relquery.model.torch_runtime.load import TorchModel
from relquery.prompt import Answer, Compared, Finish, Prompt, Reuse, Role, Sampling, Span
from tests.engine.harness import spied
from tests.model.oracle.architectures import (
    LLAMA_LIKE,
    NETWORKS,
    answers,
    build,
    engine_of,
    failing_second_layer,
    finished,
    generated,
    made,
    model_of,
    native,
    prompts_with_shared_prefixes,
    quick_of,
)

TOKENS = 10


class Case(NamedTuple):
    """A network on our attention, prompts, and what the stock network generated for them."""

    model: TorchModel
    prompts: list[TokenIds]
    expected: list[list[int]]


@cache
def case_of(name: str) -> Case:
    model, network = model_of(name)
    prompts = prompts_with_shared_prefixes(8)
    expected = [generated(network, prompt, TOKENS) for prompt in prompts]
    assert len({tuple(output) for output in expected}) > 4, "the network always says the same"
    return Case(model, prompts, expected)


SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "no prefix caching": {"prefix_caching": False},
    "no segment sharing": {"segment_sharing": False},
    "neither": {"prefix_caching": False, "segment_sharing": False},
    "one request at a time": {"max_num_seqs": 1},
    "three requests at a time": {"max_num_seqs": 3},
    "chunks of 5 tokens": {"max_num_batched_tokens": 5, "max_num_seqs": 4},
    "chunks of 64 tokens": {"max_num_batched_tokens": 64},
    "blocks of 1": {"block_size": 1},
    "blocks of 4": {"block_size": 4, "max_num_batched_tokens": 33},
    "preemption": {"block_size": 4, "cache_tokens": 112},
}
SETTINGS["preemption without caching"] = {**SETTINGS["preemption"], "prefix_caching": False}


@pytest.mark.parametrize("name", NETWORKS)
def test_greedy_output_is_that_of_transformers(name: str) -> None:
    model, prompts, expected = case_of(name)
    assert answers(model, prompts, TOKENS) == expected


@quick_of(SETTINGS, "neither", "three requests at a time", "chunks of 5 tokens", "blocks of 4")
def test_greedy_output_is_that_of_transformers_in_every_setting(name: str) -> None:
    model, prompts, expected = case_of("gemma3")
    assert answers(model, prompts, TOKENS, **SETTINGS[name]) == expected


def test_greedy_output_is_the_same_in_every_order_of_submission() -> None:
    model, prompts, expected = case_of("gemma3")
    for seed, setting in enumerate(("preemption", "preemption without caching")):
        order = np.random.default_rng(seed).permutation(len(prompts)).tolist()
        assert answers(model, prompts, TOKENS, order, **SETTINGS[setting]) == expected


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_step_that_fails_between_two_layers_changes_no_answer(name: str) -> None:
    model, prompts, expected = case_of(name)
    engine = engine_of(model, block_size=4)
    requests = [Request(i, prompt, TOKENS) for i, prompt in enumerate(prompts)]
    for request in requests:
        engine.submit(request)
    for _ in range(3):
        with failing_second_layer(), pytest.raises(KeyboardInterrupt):
            engine.step()
        engine.step()
    list(finished(engine, []))
    assert [request.output for request in requests] == expected


# ---- sampled and restricted answers, on one network


def test_sampled_output_depends_on_the_seed_and_not_on_the_batch() -> None:
    (llama, _), prompts = model_of("llama"), prompts_with_shared_prefixes(8)

    def sampled(seed: int, **limits: Any) -> list[list[int]]:
        draw = Draw(temperature=1.0, top_p=0.95, top_k=50, seed=seed)
        requests = [Request(i, prompt, TOKENS, draw) for i, prompt in enumerate(prompts)]
        list(finished(engine_of(llama, **limits), requests))
        return [request.output for request in requests]

    first = sampled(1)
    assert sampled(1, max_num_seqs=1) == first
    assert sampled(1, max_num_batched_tokens=9, block_size=1) == first
    assert sampled(1, prefix_caching=False, cache_tokens=96, block_size=4) == first
    assert sampled(2) != first


# ---- the executor: chunks in, drawn tokens out


@pytest.fixture(scope="module")
def llama() -> NativeModel:
    return native(build("llama"))


class Storm:
    """Prompts whose steps a storm takes in any order; each prompt's slots change with its run."""

    def __init__(self, model: NativeModel, count: int, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.executor = model.executor(EngineConfig(), 1_000, lambda: 0.0)
        self.tokens = self.random.integers(3, 97, (count, 60)).astype(np.int32)
        network = build("llama")
        with torch.inference_mode():
            logits = network(torch.from_numpy(self.tokens).long()).logits
        self.expected = logits.argmax(-1)
        self.done = [0] * count
        self.runs = [0] * count
        self.slots = [np.empty(0, np.int64)] * count
        self.numbers = iter(range(1, 1_000))

    def begin(self, number: int) -> None:
        """Compute some first tokens of a prompt, in new slots."""
        free = set(range(1_000)) - {slot for each in self.slots for slot in each.tolist()}
        self.slots[number] = self.random.permutation(list(free))[:60]
        self.runs[number] = next(self.numbers)
        self.done[number] = stop = int(self.random.integers(1, 20))
        self.executor.execute([self.chunk(number, 0, stop)])

    def chunk(self, number: int, start: int, stop: int) -> Chunk:
        slots = self.slots[number]
        context = (Segment(slots[:start]),) if start else ()
        run = self.runs[number] if start and stop == start + 1 else 0
        tokens = self.tokens[number, start:stop]
        return Chunk(number, tokens, start, context, slots[start:stop], Draw(), run=run)

    def step(self, numbers: list[int]) -> None:
        chunks = [self.chunk(each, self.done[each], self.done[each] + 1) for each in numbers]
        self.check(numbers, self.executor.execute(chunks))

    def follow(self, numbers: list[int]) -> bool:
        """The step after the last one, with its prompts; False if it must be given as chunks."""
        tokens = [int(self.tokens[each, self.done[each]]) for each in numbers]
        slots = np.array([self.slots[each][self.done[each]] for each in numbers])
        found = self.executor.follow(tokens, slots)
        if found is not None:
            self.check(numbers, found)
        return found is not None

    def go_on(self, numbers: list[int]) -> int:
        """Some steps that follow the last one; returns how many were not given as chunks."""
        alone = 0
        while max(self.done[each] for each in numbers) < 55 and self.random.integers(3):
            if self.follow(numbers):
                alone += 1
            else:
                self.step(numbers)
            for each in numbers:
                self.done[each] += 1
        return alone

    def check(self, numbers: list[int], found: list[Drawn | None]) -> None:
        assert found == [int(self.expected[each, self.done[each]]) for each in numbers]


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 3))]
)
def test_decode_steps_may_follow_one_another_or_not(
    llama: NativeModel, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = spied(monkeypatch, _Last, "follow")
    prompts, alone = Storm(llama, 6, seed), 0
    for number in range(6):
        prompts.begin(number)
    chosen = list(range(6))
    for _ in range(150):
        event = prompts.random.integers(0, 12)
        if event == 0:
            chosen = prompts.random.permutation(6)[: prompts.random.integers(1, 7)].tolist()
        elif event == 1:  # lost its blocks, and computes again
            prompts.begin(int(prompts.random.integers(0, 6)))
        elif event == 2:  # a token that was forced
            skipped = int(prompts.random.integers(0, 6))
            start = prompts.done[skipped]
            prompts.executor.execute([prompts.chunk(skipped, start, start + 2)])
            prompts.done[skipped] += 2
        elif event == 3:  # the same step again
            prompts.step(chosen)
        elif event == 4:
            with monkeypatch.context() as patched:
                patched.setattr(prompts.executor, "_run", interrupt)
                with pytest.raises(KeyboardInterrupt):
                    prompts.step(chosen)
        for number in range(6):
            if prompts.done[number] > 55:
                prompts.begin(number)
        prompts.step(chosen)
        for number in chosen:
            prompts.done[number] += 1
        alone += prompts.go_on(chosen)
    assert 20 < sum(followed) < len(followed)
    assert alone > 40


def test_a_step_cannot_follow_none_a_failed_one_or_one_of_several_tokens(
    llama: NativeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = Storm(llama, 1, 0)
    assert prompts.executor.follow([1], np.array([0])) is None
    prompts.begin(0)
    assert not prompts.follow([0])
    prompts.step([0])
    prompts.done[0] += 1
    with monkeypatch.context() as patched:
        patched.setattr(prompts.executor, "_run", interrupt)
        with pytest.raises(KeyboardInterrupt):
            prompts.follow([0])
    assert not prompts.follow([0])
    prompts.step([0])
    prompts.done[0] += 1
    assert prompts.follow([0])


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


# ---- states that are not finite

BAD = 200
COMMON = tuple(range(40, 72))
ENGINES: dict[str, dict[str, Any]] = {
    "usual": {},
    "small steps": {"max_num_batched_tokens": 8},
    "small blocks": {"block_size": 1},
}


@pytest.fixture(scope="module")
def broken() -> Any:
    torch.manual_seed(5)
    sizes = LLAMA_LIKE | {"num_attention_heads": 2, "vocab_size": len(byte_tokenizer())}
    built: Any = made("Llama", sizes, initializer_range=0.4)().eval()
    with torch.no_grad():
        built.model.embed_tokens.weight[BAD] = torch.nan
    return built


@pytest.fixture(
    params=[
        "usual",
        *(pytest.param(n, marks=pytest.mark.long) for n in list(ENGINES)[1:3]),
    ]
)
def backend(request: pytest.FixtureRequest, broken: Any) -> EmbeddedBackend:
    model = native(broken, tokenizer=byte_tokenizer())
    return EmbeddedBackend(model, EngineConfig(**ENGINES[request.param]))


def plain(*ids: int) -> Prompt:
    return (Span(ids, Role.NONE),)


def answers_of(backend: EmbeddedBackend, prompts: list[Prompt], sampling: Sampling) -> list[Answer]:
    found = dict(backend.answer(prompts, sampling))
    backend.engine.pool.check()
    return [found[index] for index in range(len(prompts))]


@torch.no_grad()
def stock_answer(broken: Any, ids: tuple[int, ...], count: int) -> tuple[int, ...]:
    tokens = torch.tensor([ids])
    for _ in range(count):
        best = broken(tokens).logits[0, -1].argmax()
        tokens = torch.cat([tokens, best[None, None]], 1)
    return tuple(tokens[0, len(ids) :].tolist())


GREEDY = Sampling(max_tokens=3)
ONE_STEP = Sampling(max_tokens=1)


@pytest.mark.parametrize("sampling", [GREEDY, ONE_STEP], ids=["decoding", "one step"])
def test_neighbours_with_the_same_beginning_are_answered_right(
    backend: EmbeddedBackend, broken: Any, sampling: Sampling
) -> None:
    prompts = [(*COMMON, BAD), (*COMMON, 90), (*COMMON[:20], BAD, *COMMON[:9]), (*COMMON, 91, 92)]
    asked = [plain(*ids) for ids in prompts]
    alone = [answers_of(backend, [one], sampling)[0] for one in asked]
    for found in (alone, answers_of(backend, asked, sampling)):
        for ids, answer in zip(prompts, found, strict=True):
            if BAD in ids:
                assert (answer.text, answer.finish) == (None, Finish.ERROR)
                assert "no finite numbers" in (answer.error or "")
            else:
                assert answer.tokens == stock_answer(broken, ids, sampling.max_tokens)


def test_labels_comparisons_and_samples_say_so_too(backend: EmbeddedBackend) -> None:
    prompts = [plain(*COMMON, BAD), plain(*COMMON, 90)]
    for sampling in (
        Sampling(labels=("Yes", "No")),
        Compared(max_tokens=4, texts=("Yes",)),
        Sampling(max_tokens=3, temperature=0.7, seed=1, top_k=5),
    ):
        bad, good = answers_of(backend, prompts, sampling)
        assert bad.finish is Finish.ERROR
        assert good.finish is not Finish.ERROR


def test_a_span_with_such_states_spoils_only_who_reads_it(
    backend: EmbeddedBackend, broken: Any
) -> None:
    spoilt = Span((50, 51, BAD, 52), Role.NONE, Reuse.INDEPENDENT, keep=1)
    prompts = [(*plain(*COMMON), spoilt, Span((9,), Role.NONE)), plain(*COMMON, 90)]
    bad, good = answers_of(backend, prompts, GREEDY)
    assert bad.finish is Finish.ERROR
    assert good.tokens == stock_answer(broken, (*COMMON, 90), 3)
