"""A prompt whose states are not finite has an error, and spoils no other prompt."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch

from relquery.backends.local.embedded import EmbeddedBackend
from relquery.config import EngineConfig
from relquery.model.networks.load import prepare
from relquery.model.networks.random import byte_tokenizer
from relquery.prompt import Answer, Compared, Finish, Prompt, Reuse, Role, Sampling, Span
from tests.model.oracle.architectures import LLAMA_LIKE, made

BAD = 200
SHARED = tuple(range(40, 72))
SETTINGS: dict[str, dict[str, Any]] = {
    "usual": {},
    "small steps": {"max_num_batched_tokens": 8},
    "small blocks": {"block_size": 1},
    "host": {"host_tokens": 512, "cache_tokens": 64, "max_input": 128},
}


@pytest.fixture(scope="module")
def network() -> Any:
    torch.manual_seed(5)
    sizes = LLAMA_LIKE | {"num_attention_heads": 2, "vocab_size": len(byte_tokenizer())}
    built: Any = made("Llama", sizes, initializer_range=0.4)().eval()
    with torch.no_grad():
        built.model.embed_tokens.weight[BAD] = torch.nan
    return built


@pytest.fixture(
    params=[
        "usual",
        "host",
        *(pytest.param(n, marks=pytest.mark.long) for n in list(SETTINGS)[1:3]),
    ]
)
def backend(request: pytest.FixtureRequest, network: Any) -> EmbeddedBackend:
    model = prepare(deepcopy(network), byte_tokenizer(), "tiny")
    return EmbeddedBackend(model, EngineConfig(**SETTINGS[request.param]))


def plain(*ids: int) -> Prompt:
    return (Span(ids, Role.NONE),)


def ask(backend: EmbeddedBackend, prompts: list[Prompt], sampling: Sampling) -> list[Answer]:
    found = dict(backend.answer(prompts, sampling))
    backend.engine.pool.check()
    backend.engine.host.check()
    return [found[index] for index in range(len(prompts))]


@torch.no_grad()
def stock(network: Any, ids: tuple[int, ...], count: int) -> tuple[int, ...]:
    tokens = torch.tensor([ids])
    for _ in range(count):
        best = network(tokens).logits[0, -1].argmax()
        tokens = torch.cat([tokens, best[None, None]], 1)
    return tuple(tokens[0, len(ids) :].tolist())


GREEDY = Sampling(max_tokens=3)
ONE_STEP = Sampling(max_tokens=1)


@pytest.mark.parametrize("sampling", [GREEDY, ONE_STEP], ids=["decoding", "one step"])
def test_neighbours_with_the_same_beginning_are_answered_right(
    backend: EmbeddedBackend, network: Any, sampling: Sampling
) -> None:
    prompts = [(*SHARED, BAD), (*SHARED, 90), (*SHARED[:20], BAD, *SHARED[:9]), (*SHARED, 91, 92)]
    asked = [plain(*ids) for ids in prompts]
    alone = [ask(backend, [one], sampling)[0] for one in asked]
    for answers in (alone, ask(backend, asked, sampling)):
        for ids, answer in zip(prompts, answers, strict=True):
            if BAD in ids:
                assert (answer.text, answer.finish) == (None, Finish.ERROR)
                assert "no finite numbers" in (answer.error or "")
            else:
                assert answer.tokens == stock(network, ids, sampling.max_tokens)


def test_labels_comparisons_and_samples_say_so_too(backend: EmbeddedBackend) -> None:
    prompts = [plain(*SHARED, BAD), plain(*SHARED, 90)]
    for sampling in (
        Sampling(labels=("Yes", "No")),
        Compared(max_tokens=4, texts=("Yes",)),
        Sampling(max_tokens=3, temperature=0.7, seed=1, top_k=5),
    ):
        bad, good = ask(backend, prompts, sampling)
        assert bad.finish is Finish.ERROR
        assert good.finish is not Finish.ERROR


def test_a_span_with_such_states_spoils_only_who_reads_it(
    backend: EmbeddedBackend, network: Any
) -> None:
    spoilt = Span((50, 51, BAD, 52), Role.NONE, Reuse.INDEPENDENT, keep=1)
    prompts = [(*plain(*SHARED), spoilt, Span((9,), Role.NONE)), plain(*SHARED, 90)]
    bad, good = ask(backend, prompts, GREEDY)
    assert bad.finish is Finish.ERROR
    assert good.tokens == stock(network, (*SHARED, 90), 3)
