"""Answers that follow a grammar: forced tokens take no step, whatever else the engine does."""

from __future__ import annotations

from relquery.engine.request.request import Draw, Request
from relquery.prompt import Finish
from tests.engine.harness import VOCABULARY, Harness, ToyMatcher, expected_output

ANY = tuple(range(VOCABULARY))
END = frozenset({VOCABULARY})


def ask(
    harness: Harness, *places: tuple[int, ...], most: int = 30, fails_at: int | None = None
) -> Request:
    """Submit it, and serve all."""
    draw = Draw(matcher=ToyMatcher(places, fails_at))
    return harness.ask([1, 2, 3], most, draw=draw, end=END)


def test_forced_tokens_are_computed_with_the_token_before_them() -> None:
    harness = Harness()
    request = ask(harness, (1,), (2,), ANY, (3,), (4,), (0,), ANY)
    assert request.output == expected_output(request)
    assert [len(step[0].tokens) for step in harness.executor.steps] == [5, 4]


def test_an_answer_that_is_forced_from_the_beginning_takes_one_step() -> None:
    harness = Harness()
    request = ask(harness, (1,), (2,), (3,))
    assert (request.output, request.finish) == ([1, 2, 3], Finish.STOP)
    assert len(harness.executor.steps) == 1


def test_an_answer_ends_where_nothing_can_follow_and_where_it_draws_an_end() -> None:
    harness = Harness()
    over = ask(harness, ANY, ANY)
    ended = ask(harness, (1,), (*END, *END), (2,), ANY)
    assert (len(over.output), over.finish) == (2, Finish.STOP)
    assert (ended.output, ended.finish) == ([1], Finish.STOP)


def test_max_tokens_cut_an_answer_also_where_tokens_are_forced() -> None:
    for most in range(1, 7):
        harness = Harness()
        request = ask(harness, (1,), (2,), ANY, (3,), (4,), (0,), most=most)
        assert request.output == expected_output(request)
        assert len(request.output) == most
        assert request.finish is (Finish.STOP if most == 6 else Finish.LENGTH)


def test_a_cache_that_is_too_small_cuts_an_answer_that_begins_with_forced_tokens() -> None:
    harness = Harness(cache_tokens=8)
    request = ask(harness, *[(1,)] * 20)
    assert (request.output, request.finish) == ([1] * 5, Finish.LENGTH)


def test_an_answer_whose_grammar_fails_has_an_error_that_says_why() -> None:
    harness = Harness()
    request, other = ask(harness, ANY, ANY, ANY, fails_at=1), ask(harness, ANY, ANY, ANY)
    assert (request.finish, request.error) == (Finish.ERROR, "It broke.")
    assert other.output == expected_output(other)


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


def test_forced_tokens_that_the_cache_serves_do_not_count_as_prompt() -> None:
    harness = Harness(block_size=2)
    first = ask(harness, *[(1,)] * 6, ANY)
    second = ask(harness, *[(1,)] * 6, ANY)
    assert (first.cached, second.cached) == (0, 3)
    assert len(harness.executor.steps[-1][0].tokens) == 1
