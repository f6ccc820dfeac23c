"""Answers that follow a grammar: forced tokens take no step, whatever else the engine does."""

from __future__ import annotations

from functools import partial
from math import log
from random import Random
from typing import Any
from unittest.mock import Mock

import pytest

from relquery.engine.executor import SimulatedExecutor
from relquery.engine.request.request import Draw, Request
from relquery.prompt import Finish, TokenLogprob
from tests.engine.harness import VOCABULARY, Harness, ToyMatcher, expected_output, for_each

ANY = tuple(range(VOCABULARY))
END = frozenset({VOCABULARY})


def test_steps_without_forced_tokens_are_not_planned_anew() -> None:
    harness = Harness()
    planned = []
    plan = harness.engine._schedule
    harness.engine._schedule = lambda: planned.append(plan()) or planned[-1]  # type: ignore[method-assign,func-returns-value]
    requests = [
        harness.submit([1, 2, 3], 30, draw=Draw(matcher=ToyMatcher((*[ANY] * 9, (1,), *[ANY] * 9))))
        for _ in range(2)
    ]
    harness.run()
    assert [request.output for request in requests] == [expected_output(each) for each in requests]
    assert len(harness.executor.steps) == 18
    assert len(planned) == 4  # the prompts, the first decode, the forced tokens, the next decode


# ---- log-probabilities

LABELS = ((1, 2, 3), (1, 2, 4), (1, 0), (3,))
LIMITS: dict[str, dict[str, Any]] = {
    "usual": {},
    "preemption": {"cache_tokens": 64},
    "no prefix caching": {"prefix_caching": False},
    "small steps": {"max_num_batched_tokens": 5, "max_num_seqs": 3},
}


def told(token: int, count: int) -> TokenLogprob:
    """What the simulated executor says of a token."""
    others = [each for each in range(count + 1) if each != token]
    top = [(each, -at * log(2)) for at, each in enumerate([token, *others], 1)]
    return TokenLogprob(token, -log(2), tuple(top[:count]))


def check(request: Request) -> None:
    assert request.output == expected_output(request)
    count = request.draw.logprobs
    kept = None if count is None else [told(token, count) for token in request.output]
    assert request.logprobs == kept


@for_each("limits", LIMITS.values())
@for_each("seed", range(5))
def test_there_is_one_for_each_token_of_those_who_ask(seed: int, limits: dict[str, Any]) -> None:
    rng, harness = Random(seed), Harness(**limits)
    for _ in range(12):
        draw = Draw(logprobs=rng.choice([None, 0, 3, 20]))
        rules: dict[str, Any] = rng.choice([{}, {"labels": LABELS, "end": END}, {"end": {4}}])
        prompt = [rng.randrange(3) for _ in range(rng.randint(1, 20))]
        harness.submit(prompt, rng.randint(1, 12), draw=draw, **rules)
        for _ in range(rng.randint(0, 3)):
            harness.step()
    for request in harness.run():
        check(request)


def test_runs_of_decode_steps_tell_them(monkeypatch: pytest.MonkeyPatch) -> None:
    harness, follow = Harness(), Mock(wraps=SimulatedExecutor.follow)
    monkeypatch.setattr(harness.executor, "follow", partial(follow, harness.executor))
    counts = [2, None, 0]
    requests = [harness.submit([1, 2, 3], 20, draw=Draw(logprobs=count)) for count in counts]
    harness.run()
    assert follow.call_count > 15
    for request in requests:
        check(request)


def test_tokens_that_labels_force_are_drawn_too_and_others_save_the_step() -> None:
    for count, steps in ((None, 1), (1, 3)):
        harness = Harness()
        draw = Draw(logprobs=count)
        request = harness.submit([1, 2], 9, draw=draw, labels=((1, 2, 3), (4, 1, 0)), end=END)
        harness.run()
        assert (request.finish, len(request.output)) == (Finish.STOP, 3)
        assert len(harness.executor.steps) == steps
        check(request)


def test_a_stop_rule_ends_an_answer_at_the_same_token_and_the_end_token_has_none() -> None:
    for count in None, 2:
        harness = Harness()
        stopped = harness.submit(
            [1, 2], 20, draw=Draw(logprobs=count), stop=lambda output: len(output) == 5
        )
        ended = harness.submit([1, 2], 20, draw=Draw(logprobs=count), end={3})
        harness.run()
        assert (stopped.finish, len(stopped.output)) == (Finish.STOP, 5)
        assert ended.finish is Finish.STOP
        assert 3 not in ended.output
        check(stopped)
        check(ended)
