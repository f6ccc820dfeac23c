"""Scores of whole networks, against the stock network run over each label, and against decoding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import fsum
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relquery.arrays import Slots
from relquery.engine.executor import Chunk, Drawn
from relquery.engine.requests.labels import Drafts, LabelTrie, Normalization
from relquery.engine.requests.pieces import Placing
from relquery.engine.requests.request import Request, Rules
from relquery.model.torch_runtime.executor import TorchExecutor
from tests.model.oracle.architectures import (
    VOCABULARY,
    engine_of,
    failing_second_layer,
    finished,
    model_of,
    placing_of,
    quick_of,
)
from tests.model.oracle.dense import dense_logits
from tests.model.test_spans import Spec, dense_chain, engine_chain

ARCHITECTURES = [
    *("llama", "qwen3", "gpt2", "opt", "gemma2", "gemma3", "gpt_neox", "bloom", "mpt"),
    "falcon_grouped",
]
END = frozenset({2, 90})
LABELS = ((5, 6, 7), (5, 6, 8, 9), (10,), (11, 12), (11, 40, 3), (10, 30), (5, 6, 8, 4))
Labels = tuple[tuple[int, ...], ...]


class Counted(TorchExecutor):
    """Counts its steps."""

    steps = 0

    def execute(self, chunks: Sequence[Chunk]) -> list[Drawn | None]:
        self.steps += 1
        return super().execute(chunks)

    def follow(self, tokens: Sequence[int], slots: Slots) -> list[Drawn | None] | None:
        drawn = super().follow(tokens, slots)
        self.steps += drawn is not None
        return drawn


def served(
    name: str,
    specs: Sequence[Spec],
    labels: Labels = LABELS,
    scored: bool = True,
    normalization: Normalization = "branch",
    **limits: Any,
) -> tuple[list[Request], int]:
    """Requests that weigh or decode labels, and how many steps."""
    trie = LabelTrie(labels, END, normalization) if scored else None

    def make(number: int, placing: Placing) -> Request:
        options: dict[str, Any] = {"rules": Rules(END, labels), "scored": scored}
        chain = engine_chain(specs[number])
        return Request(number, chain, 9, **options, trie=trie, placing=placing)

    return serve(name, make, len(specs), **limits)


def serve(
    name: str, make: Callable[[int, Placing], Request], count: int, **limits: Any
) -> tuple[list[Request], int]:
    """Requests that were submitted one after the other and run together, and how many steps."""
    model, _ = model_of(name)
    engine = engine_of(model, Counted, **{"cache_tokens": 2048, "block_size": 4} | limits)
    placing = placing_of(model)
    requests = [make(number, placing) for number in range(count)]
    list(finished(engine, requests))
    assert engine.pool.held == 0
    return requests, cast(Counted, engine._executor).steps


@cache
def reference(name: str, spec: Spec, labels: Labels = LABELS) -> list[float]:
    """Log-probability of each label, by the stock network over prompt and label."""
    _, network = model_of(name)

    def log_of(label: tuple[int, ...]) -> float:
        logits = dense_logits(network, dense_chain((*spec, *label)))[-1 - len(label) :].double()
        logs = []
        for depth, row in enumerate(logits):
            through = [other for other in labels if other[:depth] == label[:depth]]
            ways = {other[depth] for other in through if len(other) > depth}
            allowed = sorted(ways | (END if label[:depth] in labels else set()))
            if not ways:
                break
            shares = dict(zip(allowed, row[allowed].softmax(-1).tolist(), strict=True))
            taken = END if depth == len(label) else {label[depth]}
            logs.append(float(np.log(fsum(shares[token] for token in taken))))
        return fsum(logs)

    return [log_of(label) for label in labels]


@cache
def joint_reference(name: str, spec: Spec, labels: Labels = LABELS) -> list[float]:
    """The sum of the log-probabilities of a label's tokens, and of its end where another label goes
    on, by the stock network; then a softmax over the labels."""
    _, network = model_of(name)

    def log_of(label: tuple[int, ...]) -> float:
        logits = dense_logits(network, dense_chain((*spec, *label)))[-1 - len(label) :]
        logs = logits.double().log_softmax(-1)
        found = float(sum(row[token] for row, token in zip(logs, label, strict=False)))
        goes_on = any(len(other) > len(label) and other[: len(label)] == label for other in labels)
        return found + float(logs[-1, sorted(END)].logsumexp(0)) if goes_on else found

    return torch.tensor([log_of(label) for label in labels]).log_softmax(0).tolist()


REFERENCES: dict[Normalization, Callable[..., list[float]]] = {
    "branch": reference,
    "joint": joint_reference,
}


BRANCH: list[Normalization] = ["branch"]


def check(
    name: str,
    specs: Sequence[Spec],
    labels: Labels = LABELS,
    normalization: Normalization = "branch",
    **limits: Any,
) -> list[Request]:
    requests, _ = served(name, specs, labels, normalization=normalization, **limits)
    for request, spec in zip(requests, specs, strict=True):
        expected = REFERENCES[normalization](name, spec, labels)
        assert request.scores == pytest.approx(expected, abs=1e-5)
        assert request.scores is not None
        assert fsum(np.exp(request.scores)) == pytest.approx(1)
    return requests


RNG = np.random.default_rng(3)


def words(count: int) -> tuple[int, ...]:
    return tuple(RNG.integers(3, VOCABULARY, count).tolist())


COMMON, PASSAGES = words(21), [words(count) for count in (14, 9)]
PLAIN = [(*COMMON, *words(6)), (*COMMON, *words(1)), COMMON, words(1), words(40)]
SPANNED = [
    (*COMMON, *PASSAGES, *words(3)),
    (*COMMON, PASSAGES[1], 4, PASSAGES[0], *words(2)),
    (PASSAGES[0], *words(5)),
]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_scores_are_those_of_the_stock_network_over_prompt_and_label(name: str) -> None:
    for normalization in REFERENCES if name in {"llama", "gpt2", "bloom"} else BRANCH:
        requests = check(name, [*PLAIN, *SPANNED], normalization=normalization)
        assert len({tuple(request.output) for request in requests}) > 2


SETTINGS: dict[str, dict[str, Any]] = {
    "no prefix caching": {"prefix_caching": False},
    "no segment sharing": {"segment_sharing": False},
    "in chunks": {"max_num_batched_tokens": 7},
    "in slices": {"slice_tokens": 16},
    "in slices of 1": {"slice_tokens": 1},
    "blocks of 1": {"block_size": 1},
    "preemption": {"cache_tokens": 128, "max_num_batched_tokens": 16},
    "one at a time": {"max_num_seqs": 1},
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_scores_are_the_same_in_every_setting(setting: str) -> None:
    normalization = list(REFERENCES)[list(SETTINGS).index(setting) % 2]
    check("gemma2", [*PLAIN, *SPANNED], normalization=normalization, **SETTINGS[setting])


@pytest.mark.parametrize("name", ["llama", "gpt2", "bloom"])
def test_a_prompt_that_is_cached_but_for_its_last_token_has_the_same_scores(name: str) -> None:
    spec = words(13)
    first, again = check(name, [spec, spec], max_num_seqs=1)
    assert again.cached == 12
    assert again.scores == pytest.approx(first.scores, abs=1e-5)


def test_one_pass_suffices() -> None:
    assert served("gpt2", PLAIN)[1] == 1
    assert served("gpt2", PLAIN, scored=False)[1] > 1


TOKEN = st.integers(3, 12)
LABEL_SETS = st.lists(
    st.lists(TOKEN, min_size=1, max_size=4).map(tuple), min_size=1, max_size=7, unique=True
).map(tuple)


@quick_of(("llama", "gpt2", "gemma3"), "llama")
@given(
    labels=LABEL_SETS,
    prompts=st.lists(st.lists(TOKEN, min_size=1, max_size=12).map(tuple), min_size=1, max_size=4),
    normalization=st.sampled_from(["joint", "branch"]),
)
def test_the_answer_is_the_one_that_decoding_step_by_step_gives(
    name: str, labels: Labels, prompts: list[Spec], normalization: Normalization
) -> None:
    scored, _ = served(name, prompts, labels, normalization=normalization)
    for request, prompt in zip(scored, prompts, strict=True):
        expected = REFERENCES[normalization](name, prompt, labels)
        assert request.scores == pytest.approx(expected, abs=1e-5)
    decoded, _ = served(name, prompts, labels, scored=False)
    assert [request.output for request in scored] == [request.output for request in decoded]


# ---- drafts

ANSWER = 5
WRONG_DRAFT = (5, 6, 7)


@cache
def answer_of(name: str, spec: Spec) -> list[int]:
    """The first tokens of the answer, by the stock network over all before each."""
    output: list[int] = []
    for _ in range(ANSWER):
        logits = dense_logits(model_of(name)[1], dense_chain((*spec, *output)))
        output.append(int(logits[-1].argmax()))
    return output


def served_drafts(
    name: str, specs: Sequence[Spec], right: int, **limits: Any
) -> tuple[list[Request], int]:
    """Requests with drafts of which one has so many tokens of the answer; and how many steps."""

    def make(number: int, placing: Placing) -> Request:
        likely = tuple(answer_of(name, specs[number])[:right])
        drafts = Drafts([WRONG_DRAFT, (*likely, *WRONG_DRAFT), (*likely, 8)])
        chain = engine_chain(specs[number])
        return Request(number, chain, ANSWER, drafts=drafts, placing=placing)

    return serve(name, make, len(specs), **limits)


def check_drafts(name: str, right: int, **limits: Any) -> None:
    specs = [*PLAIN, *SPANNED]
    requests, _ = served_drafts(name, specs, right, **limits)
    assert [request.output for request in requests] == [answer_of(name, spec) for spec in specs]


@quick_of(ARCHITECTURES, "llama", "gpt2", "bloom")
def test_answers_are_those_of_the_stock_network(name: str) -> None:
    check_drafts(name, 2)


@pytest.mark.parametrize("right", [0, ANSWER - 1])
def test_answers_are_the_same_however_much_of_a_draft_is_right(right: int) -> None:
    for name in ("llama", "gpt2"):
        check_drafts(name, right)


@quick_of(SETTINGS, "in chunks", "in slices of 1", "preemption")
def test_answers_are_the_same_in_every_setting(name: str) -> None:
    check_drafts("gemma2", 2, **SETTINGS[name])


def test_right_drafts_give_whole_answers_in_one_step() -> None:
    assert served_drafts("llama", PLAIN, ANSWER - 1)[1] == 1
    assert served_drafts("llama", PLAIN, 0)[1] >= ANSWER - 1


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_prompt_that_is_cached_but_for_its_last_token_has_the_same_answer(name: str) -> None:
    spec = (*COMMON, *words(4))
    first, again = served_drafts(name, [spec, spec], 2, max_num_seqs=1)[0]
    assert again.cached == 24
    assert first.output == again.output == answer_of(name, spec)


# ---- prompts that one step computes, whose states are dropped

LONG = words(45)
LONG_PROMPTS = [(*LONG, *words(4)), (*LONG, *words(9)), (*LONG, *words(2))]
BEYOND: dict[str, Any] = {"cache_tokens": 16, "max_input": 64, "max_num_batched_tokens": 256}


@quick_of(ARCHITECTURES, "llama", "gemma3", "gpt2", "bloom")
def test_prompts_beyond_the_cache_have_the_scores_of_the_stock_network(name: str) -> None:
    for slice_tokens in (1, 7, 16, 2_048) if name == "gemma3" else (2_048,):
        requests = check(name, LONG_PROMPTS, slice_tokens=slice_tokens, max_num_seqs=1, **BEYOND)
        assert [request.cached for request in requests] == [0, 16, 16]
    together = check(name, [*LONG_PROMPTS, (3, *words(20))], slice_tokens=17, **BEYOND)
    assert len(together) == 4


@pytest.mark.parametrize("slice_tokens", [7, 2_048])
def test_a_step_that_fails_between_two_layers_leaves_nothing(slice_tokens: int) -> None:
    loop = engine_of(model_of("llama")[0], slice_tokens=slice_tokens, block_size=4, **BEYOND)
    prompt = np.array((*COMMON, *words(30)), np.int32)
    request = Request(9, prompt, 1, rules=Rules(END, LABELS), scored=True)
    loop.submit(request)
    with failing_second_layer(), pytest.raises(KeyboardInterrupt):
        loop.step()
    assert loop.cancel(request)
    loop.pool.check()
    assert loop.pool.cached == loop.pool.held == 0
