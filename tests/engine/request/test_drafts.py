"""Drafts spare steps where the answer begins like one of them, and never change it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from relquery.engine.request.drafts import Drafts
from relquery.engine.request.request import Request
from relquery.prompt import Finish
from tests.engine.harness import (
    VOCABULARY,
    Harness,
    answer_of,
    drawn_after,
    expected_output,
    for_each,
    numbered,
)

TOKEN = st.integers(0, VOCABULARY - 1)
DRAFTS = st.lists(st.lists(TOKEN, min_size=1, max_size=5).map(tuple), min_size=1, max_size=6)
Next = Callable[[tuple[int, ...]], int]


def greedy(seed: int) -> Next:
    """A decoder whose next token depends on all before it."""
    return lambda path: int(np.random.default_rng([seed, *path]).integers(VOCABULARY))


@given(drafts=DRAFTS, seed=st.integers(0, 99))
def test_what_is_followed_is_what_a_decoder_draws(drafts: list[tuple[int, ...]], seed: int) -> None:
    trie, draw = Drafts(drafts), greedy(seed)
    tokens = trie.follow([draw(path) for path in drawn_after(trie)])
    decoded: tuple[int, ...] = ()
    for token in tokens:
        assert token == draw(decoded)
        decoded = (*decoded, token)
    assert not any(draft[: len(tokens)] == decoded for draft in drafts)  # no draft leads further
    assert len(tokens) == 1 or any(draft[: len(tokens) - 1] == decoded[:-1] for draft in drafts)


def test_beginnings_that_drafts_share_are_computed_once() -> None:
    drafts = Drafts([(1, 2, 3), (1, 2, 4), (1,), (5, 2)])
    assert drawn_after(drafts)[1:] == [(1,), (1, 2), (1, 2, 3), (1, 2, 4), (5,), (5, 2)]
    assert drafts.tokens == 6
    assert drafts.longest == 3


def draft_of(request: int, prompt_tokens: int, count: int) -> tuple[int, ...]:
    """The first tokens of the answer that a harness gives."""
    return tuple(answer_of(request, prompt_tokens + at) for at in range(count))


def submit(harness: Harness, **options: Any) -> Request:
    return harness.submit(numbered(10).tolist(), 6, **options)


@for_each("right, steps", [(0, 6), (1, 5), (2, 4), (4, 2), (5, 1)])
def test_each_draft_token_that_the_answer_begins_with_spares_a_step(right: int, steps: int) -> None:
    harness = Harness()
    true = draft_of(0, 10, 5)
    wrong = tuple((token + 1) % VOCABULARY for token in true[right:])
    request = submit(harness, drafts=Drafts([(*true[:right], *wrong)]))
    harness.run()
    assert request.output == expected_output(request)
    # What was taken from drafts is computed again where decoding goes on, in one step.
    assert len(harness.executor.steps) == steps
    assert len(harness.executor.steps[0]) == 1 + 5


def test_an_answer_ends_where_a_draft_does_in_the_step_that_ends_the_prompt() -> None:
    harness = Harness(answer=lambda request, position: position)
    request = submit(harness, drafts=Drafts([(10, 11)]), end=frozenset({12}))
    assert harness.step() == [request]
    assert request.output == [10, 11]
    assert request.finish is Finish.STOP


def test_a_decided_answer_ends_at_once_and_says_so() -> None:
    harness = Harness()
    request = submit(harness, decided=lambda output: output[0] != 4)
    assert answer_of(0, 10) != 4
    assert harness.step() == [request]
    assert request.finish is Finish.DECIDED
    assert request.output == [answer_of(0, 10)]


def test_drafts_are_not_computed_again_after_a_preemption() -> None:
    """Two requests that do not fit together once they have answers."""
    harness = Harness(block_size=2, cache_tokens=28)
    ones = [
        harness.submit([7 + number] * 10, 6, drafts=Drafts([(0,), (1,)])) for number in range(2)
    ]
    harness.run()
    assert [request.output for request in ones] == [expected_output(request) for request in ones]
    drawn = [chunk for step in harness.executor.steps for chunk in step if chunk.draw]
    tokens = sum(len(request.output) for request in ones)
    assert len(harness.executor.steps) > 6
    assert len(drawn) <= tokens + 2 * 2
