"""Scored requests: the step that ends the prompt gives all probabilities, and the answer."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, fsum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.engine.executor import SCRATCH
from relquery.engine.requests.labels import LabelTrie, Normalization
from relquery.engine.requests.request import Draw, Request
from relquery.prompt import Finish
from tests.engine.harness import Harness, Spec, expected_output, latency_of
from tests.engine.request.test_labels import LABELS

END = frozenset({9})
CHOICES = ((1, 2), (1, 3, 4), (1, 3, 5), (6,), (6, 7))


def submit(harness: Harness, prompt: Sequence[Any], **options: Any) -> Request:
    settings: dict[str, Any] = {"labels": CHOICES, "end": END, "scored": True, "max_tokens": 9}
    return harness.submit(prompt, **(settings | options))


def assert_scored(*requests: Request) -> None:
    for request in requests:
        assert request.finish is Finish.STOP
        request.max_tokens = 9  # what there was no room for, a decoder would need
        assert request.output == expected_output(request)
        assert request.scores is not None
        assert fsum(map(exp, request.scores)) == pytest.approx(1)
        assert len(request.scores) == len(request.rules.labels)


def test_the_step_has_a_chunk_for_the_prompt_and_one_for_each_further_branch() -> None:
    harness = Harness()
    request = submit(harness, range(10))
    harness.run()
    ((prompt, *labels),) = harness.executor.steps
    assert request.trie is not None
    assert [chunk.tokens.tolist() for chunk in labels] == [
        list(branch.stretch) for branch in request.trie.branches[1:]
    ]
    assert len(prompt.tokens) == 10
    assert all((chunk.writes >= SCRATCH).all() for chunk in labels)
    assert all(chunk.draw is not None and chunk.draw.weigh for chunk in (prompt, *labels))


def test_jointly_a_chunk_weighs_all_its_tokens_but_the_first() -> None:
    harness = Harness()
    labels = LabelTrie(CHOICES, END, "joint")
    submit(harness, range(10), trie=labels)
    harness.run()
    ((prompt, *chunks),) = harness.executor.steps
    assert not prompt.inner
    for chunk, branch in zip(chunks, labels.branches[1:], strict=True):
        weighed = [draw.allowed for draw in chunk.draws]
        assert weighed == [*((token,) for token in chunk.tokens[1:].tolist()), branch.allowed]
        assert all(draw.weigh and draw.among_all for draw in chunk.draws)


def test_what_all_labels_begin_with_follows_the_prompt_in_its_chunk() -> None:
    harness = Harness()
    request = submit(harness, range(10), labels=((3, 4, 5), (3, 4, 6, 7)))
    harness.run()
    ((chunk,),) = harness.executor.steps
    assert chunk.tokens.tolist() == [*range(10), 3, 4]
    assert (chunk.writes[10:] >= SCRATCH).all()
    assert chunk.draw == Draw(allowed=(5, 6), weigh=True)
    assert_scored(request)


PROMPTS = st.lists(
    st.integers(0, 5) | st.lists(st.integers(0, 5), max_size=6).map(tuple), max_size=14
).map(lambda parts: (*parts, 7))


@given(
    prompts=st.lists(PROMPTS, min_size=1, max_size=5),
    labels=LABELS,
    decoding=st.lists(st.booleans(), min_size=5, max_size=5),
    budget=st.integers(2, 40),
    blocks=st.integers(32, 48),
    normalization=st.sampled_from(["joint", "branch"]),
)
def test_answers_are_those_of_a_decoder_whatever_else_is_in_the_step(
    prompts: list[Spec],
    labels: list[tuple[int, ...]],
    decoding: list[bool],
    budget: int,
    blocks: int,
    normalization: Normalization,
) -> None:
    harness = Harness(max_num_batched_tokens=budget, cache_tokens=4 * blocks)
    trie = LabelTrie(labels, END, normalization)
    options = {"labels": tuple(labels), "end": END, "trie": trie}
    for prompt, decodes in zip(prompts, decoding, strict=False):
        if decodes:
            harness.submit(prompt, 9, labels=((1, 2, 3, 4, 5), (1, 2, 3, 4, 6)))
        submit(harness, prompt, **options)
    harness.run()
    assert_scored(*(request for request in harness.executor.requests.values() if request.scored))


def test_what_is_scored_counts_as_prompt_and_teaches_nothing_about_answers() -> None:
    harness = Harness()
    request = submit(harness, range(10))
    relquery = harness.engine.relqueries[0]
    harness.run()
    assert request.trie is not None
    assert relquery.computed_prompts == 10 + request.trie.tokens
    assert (relquery.drawn_tokens, relquery.answered_tokens) == (0, len(request.output))
    assert latency_of(relquery).tail == 0
    assert harness.engine.experience.limit == 0
