"""A trie of labels: where they part, what each has of the probability, and the greedy answer."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import exp, fsum, inf, log
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.engine.requests.labels import Drafts, LabelTrie, Normalization
from relquery.engine.requests.request import Request, Rules
from relquery.prompt import Finish
from tests.engine.harness import (
    VOCABULARY,
    Harness,
    answer_of,
    branches_of,
    drawn_after,
    expected_output,
    for_each,
    numbered,
)

END = 99
Label = tuple[int, ...]
Weights = Callable[[Label, int], float]  # (tokens so far, token) -> its logit
LABELS = st.lists(
    st.lists(st.integers(0, 3), min_size=1, max_size=5).map(tuple),
    min_size=1,
    max_size=8,
    unique=True,
)
EVERY = (0, 1, 2, 3, 98, END)
"""The vocabulary."""
ENDS = st.sampled_from([frozenset[int](), frozenset({END}), frozenset({END, 98})])


def random_weights(seed: int) -> Weights:
    """Logits that depend on all tokens so far, as a network's do."""
    return lambda path, token: float(np.random.default_rng([seed, *path, 7, token]).normal() * 3)


def uniform(path: Label, token: int) -> float:
    return 0.0


def request_of(labels: list[Label], end: frozenset[int]) -> Request:
    return Request(0, numbered(3), 9, rules=Rules(end, tuple(labels)), scored=True)


def allowed_logs(path: Label, allowed: Label, weights: Weights) -> dict[int, float]:
    logits = {token: weights(path, token) for token in allowed}
    total = log(fsum(map(exp, logits.values())))
    return {token: logit - total for token, logit in logits.items()}


def weighed(trie: LabelTrie, weights: Weights) -> list[list[float]]:
    """What an executor gives."""
    paths = branches_of(
        Request(0, numbered(1), 1, rules=Rules(labels=trie.labels), scored=True, trie=trie)
    )
    found = []
    for path, branch in zip(paths, trie.branches, strict=True):
        among = EVERY if trie.joint else branch.allowed
        first = len(path) - len(branch.inner)
        inner = [
            allowed_logs(path[:at], EVERY, weights)[path[at]] for at in range(first, len(path))
        ]
        logs = allowed_logs(path, among, weights)
        found.append([*inner, *(logs[token] for token in branch.allowed)])
    return found


def of_the_free_model(labels: list[Label], end: frozenset[int], weights: Weights) -> list[float]:
    """Each label's log-probability, by the product over its tokens, divided by their sum."""
    logs = []
    for label in labels:
        steps = [allowed_logs(label[:i], EVERY, weights)[token] for i, token in enumerate(label)]
        if any(len(other) > len(label) and other[: len(label)] == label for other in labels):
            ends = allowed_logs(label, EVERY, weights)
            steps.append(log(fsum(exp(ends[token]) for token in end)) if end else -inf)
        logs.append(fsum(steps))
    total = log(fsum(map(exp, logs)))
    return [each - total for each in logs]


def decoded(
    labels: list[Label], end: frozenset[int], weights: Weights
) -> tuple[list[float], Label]:
    """Each label's log-probability, and the greedy one, as a decoder has them, token by token."""
    rules = Rules(end, tuple(labels))

    def allowed(path: Label) -> Label:
        return () if rules.finish(path) else rules.allowed_next(path)

    def log_of(label: Label) -> float:
        steps = [
            allowed_logs(label[:i], allowed(label[:i]), weights)[t] for i, t in enumerate(label)
        ]
        if any(len(other) > len(label) and other[: len(label)] == label for other in labels):
            ends = allowed_logs(label, allowed(label), weights)
            mass = fsum(exp(share) for token, share in ends.items() if token in end)
            steps.append(log(mass) if mass else -inf)
        return fsum(steps)

    path: Label = ()
    while following := allowed(path):
        token = max(following, key=lambda each: weights(path, each))
        if token in end:
            break
        path = (*path, token)
    return [log_of(label) for label in labels], path


@given(labels=LABELS, end=ENDS, seed=st.integers(0, 999))
def test_a_label_has_the_probability_with_which_a_decoder_draws_it(
    labels: list[Label], end: frozenset[int], seed: int
) -> None:
    trie, weights = LabelTrie(labels, end), random_weights(seed)
    logs, greedy = decoded(labels, end, weights)
    found = weighed(trie, weights)
    assert trie.log_probabilities(found) == pytest.approx(logs, abs=1e-9)
    assert trie.greedy(found) == greedy
    assert fsum(map(exp, trie.log_probabilities(found))) == pytest.approx(1)


@given(labels=LABELS, end=ENDS, seed=st.integers(0, 999))
def test_jointly_a_label_has_its_share_of_what_the_free_model_gives_to_all(
    labels: list[Label], end: frozenset[int], seed: int
) -> None:
    trie, weights = LabelTrie(labels, end, "joint"), random_weights(seed)
    expected = of_the_free_model(labels, end, weights)
    assert trie.log_probabilities(weighed(trie, weights)) == pytest.approx(expected, abs=1e-9)
    plain = LabelTrie(labels, end)
    assert trie.greedy(weighed(trie, weights)) == plain.greedy(weighed(plain, weights))


@given(labels=LABELS, end=ENDS)
def test_jointly_every_token_but_the_last_of_each_label_is_computed_once(
    labels: list[Label], end: frozenset[int]
) -> None:
    trie = LabelTrie(labels, end, "joint")
    request = Request(0, numbered(1), 1, rules=Rules(labels=trie.labels), scored=True, trie=trie)
    ends = branches_of(request)
    assert len(set(ends)) == len(ends) <= 2 * len(labels)
    nodes = {label[:depth] for label in labels for depth in range(1, len(label))}
    if len(labels) > 1:
        assert trie.tokens == len(nodes)
    assert trie.depth == max(map(len, ends)) < max(map(len, labels))


@given(labels=LABELS, end=ENDS)
def test_branches_are_the_places_at_which_labels_part(
    labels: list[Label], end: frozenset[int]
) -> None:
    trie, request = LabelTrie(labels, end), request_of(labels, end)
    paths = branches_of(request)
    assert len(set(paths)) == len(paths)
    for path, branch in zip(paths, trie.branches, strict=True):
        assert branch.depth == len(path)
        assert branch.allowed == request.rules.allowed_next(path)
        assert len(branch.allowed) > 1 or len(trie.branches) == 1
        assert branch.above is None or branch.above < paths.index(path)
    assert trie.tokens == sum(len(branch.stretch) for branch in trie.branches)
    places = {label[:depth] for label in labels for depth in range(len(label))}
    for place in places - set(paths):
        assert request.rules.forced(place) is not None


def test_what_labels_have_in_common_is_computed_once_and_their_ends_not_at_all() -> None:
    trie = LabelTrie([(1, 2, 3, 4, 5), (1, 2, 3, 6, 7), (1, 2, 8, 9)], {END})
    assert [branch.stretch for branch in trie.branches] == [(1, 2), (3,)]
    assert [branch.depth for branch in trie.branches] == [2, 3]
    assert LabelTrie([(1,), (2,), (3,)], {END}).tokens == 0


@for_each("normalization", ["joint", "branch"])
def test_a_single_label_has_probability_one(normalization: Normalization) -> None:
    trie = LabelTrie([(4, 5, 6)], {END}, normalization)
    assert trie.tokens == 0
    assert trie.branches[0].allowed == (4,)
    assert trie.log_probabilities([[0.0]]) == (0.0,)
    assert trie.greedy([[0.0]]) == (4, 5, 6)


def test_all_end_tokens_together_are_one_way_on_but_greedy_takes_a_single_one() -> None:
    trie = LabelTrie([(1,), (1, 2)], {98, END})
    logs = [log(share) for share in (0.4, 0.3, 0.3)]
    found = [logs]
    assert trie.branches[0].allowed == (2, 98, END)
    assert [exp(each) for each in trie.log_probabilities(found)] == pytest.approx([0.6, 0.4])
    assert trie.greedy(found) == (1, 2)


def test_without_an_end_token_a_label_that_another_continues_has_no_probability() -> None:
    trie = LabelTrie([(1,), (1, 2)])
    assert trie.log_probabilities([[0.0]]) == (-inf, 0.0)
    assert trie.greedy([[0.0]]) == (1, 2)


def test_of_equally_likely_tokens_the_smallest_id_is_taken() -> None:
    trie = LabelTrie([(7, 1), (3, 9), (3, 4)], {END})
    assert trie.greedy(weighed(trie, uniform)) == (3, 4)


def test_a_token_that_the_free_model_would_hardly_say_counts_jointly_alone() -> None:
    # Behind 1 and 2 only 9 may follow; the model wants it behind 1, and not behind 2.
    labels, first = [(1, 9), (2, 9)], [log(0.45), log(0.55)]
    branch, joint = LabelTrie(labels), LabelTrie(labels, (), "joint")
    shares = [exp(each) for each in branch.log_probabilities([first])]
    assert shares == pytest.approx([0.45, 0.55])
    behind: dict[Label, list[float]] = {(1,): [log(1.0)], (2,): [log(0.1)]}
    found = [first, *(behind[each.stretch] for each in joint.branches[1:])]
    shares = [exp(each) for each in joint.log_probabilities(found)]
    assert shares == pytest.approx([0.45 / 0.505, 0.055 / 0.505])


@for_each(
    "labels, message",
    [
        ([], "no labels"),
        ([(1,), ()], "no tokens"),
        ([(1,), (2,), (1,)], "twice"),
        ([(1, END)], "end token"),
    ],
)
def test_what_is_no_set_of_labels_is_a_bug(labels: list[Label], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        LabelTrie(labels, {END})


def test_a_long_list_of_labels_is_taken_in() -> None:
    labels = [tuple(map(int, f"{number:06}")) for number in range(3000)]
    trie = LabelTrie(labels)
    assert all(a.depth < 6 for a, _ in pairwise(trie.branches))
    shares = [exp(each) for each in trie.log_probabilities(weighed(trie, uniform))]
    assert fsum(shares) == pytest.approx(1)


# ---- drafts

ANSWER_TOKEN = st.integers(0, VOCABULARY - 1)
DRAFTS = st.lists(st.lists(ANSWER_TOKEN, min_size=1, max_size=5).map(tuple), min_size=1, max_size=6)
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
