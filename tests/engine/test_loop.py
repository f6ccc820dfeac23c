"""The engine: requests go in, steps run, each request comes out once with its answer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.config import EngineConfig
from relquery.engine.clock import VirtualClock
from relquery.engine.executor import SimulatedExecutor
from relquery.engine.loop import Loop
from relquery.engine.request.request import Draw, Request
from relquery.engine.scheduling.plan import Plan
from relquery.engine.scheduling.policies.sarathi import sarathi
from relquery.errors import PromptTooLongError, RequestError
from relquery.prompt import Finish
from tests.engine.harness import (
    BrokenError,
    Harness,
    answer_of,
    assert_answered,
    expected_output,
    for_each,
    numbered,
)


def test_the_reference_of_these_tests_is_no_constant() -> None:
    assert len({answer_of(r, p) for r in range(3) for p in range(9)}) > 2


# ---- what is computed

COMPUTED: dict[str, tuple[dict[str, Any], list[Any], list[list[int]], list[int]]] = {
    # Limits; prompts that come together, and length of their answers; chunks of each step; hits.
    "a later request computes only what follows the shared full blocks": (
        {},
        [([[*range(10), 3]], 1), ([[*range(10), 4]], 1)],
        [[11], [3]],
        [0, 8],
    ),
    "with prefix caching off nothing is served from the cache": (
        {"prefix_caching": False},
        [([range(12)] * 2, 2)] * 2,
        [[12, 12], [1, 1]] * 2,
        [0] * 4,
    ),
    "requests submitted together compute their shared prefix once": (
        {},
        [([[*range(20), 30 + tail] for tail in range(3)], 1)],
        [[21, 1, 1]],
        [0, 20, 20],
    ),
    "equal prompts in one step share all but the last block": (
        {},
        [([range(8)] * 2, 1)],
        [[8, 4]],
        [0, 4],
    ),
    # 12 blocks: 3 cached ones that are next in line for eviction, 4 newer ones, 5 free. The first
    # request of the last step takes 7, the others count on the 3 old ones.
    "cached blocks that a step counts on are not evicted within it": (
        {"cache_tokens": 48},
        [
            ([range(12)], 1),
            ([range(100, 116)], 1),
            ([range(200, 227), [*range(12), 20], [*range(12), 21]], 1),
        ],
        [[12], [16], [27, 1, 1]],
        [0, 0, 0, 12, 12],
    ),
    "a long prompt is computed in chunks of the token budget": (
        {"max_num_batched_tokens": 8},
        [([range(21)], 2)],
        [[8], [8], [5], [1]],
        [0],
    ),
}


@pytest.mark.parametrize("case", COMPUTED.values(), ids=COMPUTED)
def test_what_is_computed_in_each_step(case: Any) -> None:
    limits, rounds, lengths, cached = case
    harness = Harness(**limits)
    for prompts, max_tokens in rounds:
        for prompt in prompts:
            harness.submit(prompt, max_tokens)
        harness.run()
    requests = [*harness.executor.requests.values()]
    assert harness.lengths == lengths
    assert [request.cached for request in requests] == cached
    assert_answered(*requests)


def test_with_prefix_caching_off_nothing_is_kept() -> None:
    harness = Harness(prefix_caching=False)
    harness.ask(range(12))
    assert harness.engine.pool.evict(100) == 0


def test_answers_are_shared_prefixes_too() -> None:
    harness = Harness()
    first = harness.ask(range(6), max_tokens=6)
    second = harness.ask([*range(6), *first.output, 9], max_tokens=1)
    # The last token of an answer is not computed, so block 2 (tokens 8..11) is not complete.
    assert second.cached == 8
    assert_answered(first, second)


def test_a_request_admitted_as_a_single_token_completes_a_shared_block_computes_the_rest() -> None:
    harness = Harness(max_num_batched_tokens=7)
    first = harness.submit(range(8))
    harness.step()
    second = harness.ask([*range(8), 9, 9, 9, 9])
    assert harness.lengths[:2] == [[7], [1, 4]]
    assert_answered(first, second)


def test_the_copies_of_blocks_that_one_step_needs_at_two_positions_are_planned() -> None:
    for blocks in range(6, 20):
        harness = Harness(block_size=2, cache_tokens=2 * blocks, relocation="cidra")
        span = (0, 1, 2, 3, 4)
        harness.ask([span, 0], 1)
        # The first moves the cached blocks away from where the others need them.
        for prompt in [(1, 2), span, 0], [span, 0], [span, 5]:
            harness.submit(prompt, 1)
        assert_answered(*harness.run())


def test_evicted_blocks_are_computed_again() -> None:
    harness = Harness()
    harness.ask(range(9), max_tokens=1)
    harness.engine.pool.evict(100)
    again = harness.ask(range(9), max_tokens=1)
    assert again.cached == 0
    assert_answered(again)


@given(
    prompts=st.lists(st.integers(1, 30), min_size=1, max_size=8),
    budget=st.integers(1, 20),
    seqs=st.integers(1, 4),
    size=st.integers(1, 5),
)
def test_no_step_exceeds_its_tokens_or_its_requests(
    prompts: list[int], budget: int, seqs: int, size: int
) -> None:
    harness = Harness(max_num_batched_tokens=budget, max_num_seqs=seqs, block_size=size)
    for length in prompts:
        harness.submit(range(length))
    harness.run()
    assert all(sum(step) <= budget and len(step) <= seqs for step in harness.lengths)
    assert_answered(*harness.executor.requests.values())


def test_a_chunk_that_does_not_end_the_prompt_draws_no_token() -> None:
    harness = Harness(max_num_batched_tokens=8)
    harness.ask(range(20), max_tokens=1)
    draws = [chunk.draw for step in harness.executor.steps for chunk in step]
    assert [draw is not None for draw in draws] == [False, False, True]


def test_decodes_go_on_while_a_prompt_is_computed_in_chunks() -> None:
    harness = Harness(max_num_batched_tokens=8)
    short = harness.submit(range(4), max_tokens=5)
    long = harness.ask(numbered(20, start=50), max_tokens=1)
    assert harness.lengths == [[4, 4], [1, 7], [1, 7], [1, 2], [1]]
    assert_answered(short, long)


# ---- preemption


@for_each("caching", [True, False])
def test_a_full_pool_preempts_and_every_request_still_gives_its_answer(caching: bool) -> None:
    harness = Harness(cache_tokens=32, prefix_caching=caching)
    requests = [harness.submit(numbered(5, start=50 * n), max_tokens=14) for n in range(4)]
    preempted = 0
    while harness.engine.waiting or harness.engine.running:
        before = list(harness.engine.running)
        harness.step()
        preempted += sum(request in harness.engine.waiting for request in before)
    assert preempted > 0
    assert [len(request.output) for request in requests] == [14] * 4
    assert_answered(*requests)


def test_a_preempted_request_is_the_first_to_be_admitted_again() -> None:
    harness = Harness(cache_tokens=16)
    first, second = (harness.submit(numbered(7, start=50 * n), max_tokens=9) for n in range(2))
    third = harness.submit(numbered(7, start=90), max_tokens=2)
    while second not in harness.engine.waiting or not second.output:
        harness.step()
    assert list(harness.engine.waiting) == [second, third]
    assert harness.run() == [first, second, third]


def test_cached_counts_the_first_admission_and_not_what_preemption_left() -> None:
    harness = Harness(cache_tokens=16)
    requests = [harness.submit(numbered(7, start=50 * n), max_tokens=9) for n in range(2)]
    harness.run()
    assert [request.cached for request in requests] == [0, 0]


def test_forced_tokens_that_need_many_blocks_preempt_those_who_share_theirs() -> None:
    # Six forced tokens need six blocks at once; most of what the other two hold they share.
    harness = Harness(block_size=1, cache_tokens=10)
    choices = ((1, 2, 3, 4, 5, 6, 7), (1, 2, 3, 4, 5, 6, 8))
    forced = harness.submit([7], max_tokens=7, labels=choices)
    others = [harness.submit([0, 1, 2, 3, 4, 5, tail], max_tokens=3) for tail in range(2)]
    harness.step()
    assert len(harness.engine.running) == 3
    harness.step()
    assert list(harness.engine.waiting) == others
    harness.run()
    assert_answered(forced, *others)


# ---- cancellation


def test_a_waiting_request_can_be_cancelled() -> None:
    harness = Harness(max_num_seqs=1)
    first, second = harness.submit(range(4)), harness.submit(range(4))
    harness.step()
    assert harness.engine.cancel(second)
    harness.check()
    assert (second.finish, second.output, second.cached) == (Finish.CANCELLED, [], None)
    assert harness.run() == [first]


def test_a_running_request_can_be_cancelled_and_others_that_share_its_blocks_go_on() -> None:
    harness = Harness()
    first, second = harness.submit(range(12), 5), harness.submit([*range(8), 9], 5)
    harness.step()
    assert harness.engine.cancel(first)
    harness.check()
    assert first.blocks == []
    assert harness.run() == [second]
    assert_answered(second)


def test_a_request_cancelled_within_its_prompt_leaves_only_computed_blocks_to_be_found() -> None:
    harness = Harness(max_num_batched_tokens=6)
    first = harness.submit(range(20))
    harness.step()
    harness.engine.cancel(first)
    second = harness.ask(range(20))
    assert second.cached == 4
    assert_answered(second)


def test_cancelling_what_has_ended_changes_nothing() -> None:
    harness = Harness()
    request = harness.ask(range(4), max_tokens=1)
    assert not harness.engine.cancel(request)
    assert request.finish is Finish.LENGTH


# ---- failure


@for_each("failure", [BrokenError(), KeyboardInterrupt(), SystemExit(1)])
def test_after_a_failed_step_the_engine_goes_on_and_loses_nothing(failure: BaseException) -> None:
    for at in (0, 1, 2, 4):
        harness = Harness(max_num_batched_tokens=16)
        requests = [harness.submit([*range(10), tail], max_tokens=4) for tail in range(3)]
        for _ in range(at):
            harness.step()
        harness.fail(failure)
        assert harness.engine.pool.held == 0
        assert list(harness.engine.waiting) == [r for r in requests if r not in harness.finished]
        harness.run()
        assert_answered(*requests)


def test_what_a_failed_step_was_to_write_is_not_found() -> None:
    harness = Harness()
    first = harness.submit(range(12), max_tokens=1)
    harness.fail()
    harness.engine.cancel(first)
    second = harness.ask(range(12), max_tokens=1)
    assert second.cached == 0
    assert_answered(second)


def test_what_was_computed_before_a_failed_step_is_still_found() -> None:
    harness = Harness(max_num_batched_tokens=8)
    request = harness.submit(range(20), max_tokens=1)
    harness.step()
    harness.fail()
    harness.run()
    assert harness.lengths == [[8], [8], [8], [4]]
    assert_answered(request)


def test_a_request_may_count_on_what_one_that_lost_its_blocks_fills_in_the_same_step() -> None:
    harness = Harness(block_size=1)
    first = harness.submit(range(5), max_tokens=6)
    harness.step()
    harness.fail()
    second = harness.submit([*range(5), *first.output, 7])
    harness.step()
    assert second.cached == 6
    harness.run()
    assert_answered(first, second)


# ---- what cannot be served


@for_each(
    "prompt, max_tokens, error, message",
    [
        (range(16), 3, PromptTooLongError, "has 16 tokens; the KV cache has room for 15"),
        ([], 3, RequestError, "no tokens"),
        (range(3), 0, RequestError, "max_tokens is 0; it must be at least 1"),
        (range(3), -3, RequestError, "max_tokens is -3; it must be at least 1"),
    ],
)
def test_what_cannot_be_served_is_refused_and_costs_the_others_nothing(
    prompt: Any, max_tokens: int, error: type[RequestError], message: str
) -> None:
    harness = Harness(cache_tokens=16)
    first = harness.submit(range(6))
    with pytest.raises(error, match=message):
        harness.submit(prompt, max_tokens)
    assert list(harness.engine.waiting) == [first]
    second = harness.submit(range(7))
    assert harness.run() == [first, second]


def test_an_answer_is_cut_where_the_cache_of_whole_blocks_is_full() -> None:
    for cache_tokens, prompt, answer in ((16, 15, 1), (16, 10, 6), (19, 10, 6)):
        harness = Harness(cache_tokens=cache_tokens, block_size=4)
        assert harness.engine.capacity == 16
        request = harness.ask(range(prompt), max_tokens=100)
        assert (len(request.output), request.finish) == (answer, Finish.LENGTH)


# ---- how an answer ends

ENDS: dict[str, tuple[list[int], dict[str, Any], list[int], Finish, list[int]]] = {
    # What is drawn (among labels: its place), options, the answer, its end, tokens of each step.
    "at its bound": ([3, 4, 0], {}, [3, 4, 0], Finish.LENGTH, [4, 1, 1]),
    "at an end token": ([3, 4, 9, 5], {"end": {9, 8}}, [3, 4], Finish.STOP, [4, 1, 1]),
    "before its bound": ([3, 9], {"end": {9}, "max_tokens": 8}, [3], Finish.STOP, [4, 1]),
    "at once": ([9], {"end": {9}}, [], Finish.STOP, [4]),
    "with a whole label": ([1], {"labels": ((1, 2), (1, 3))}, [1, 3], Finish.STOP, [4, 1]),
    # Tokens that leave no choice take no step, and are computed together before there is one.
    "with a sure label": ([0], {"labels": ((1, 2, 3), (5, 6))}, [1, 2, 3], Finish.STOP, [4]),
    "after sure tokens": ([0], {"labels": ((1, 2, 3), (1, 2, 4))}, [1, 2, 3], Finish.STOP, [4, 2]),
    "within sure tokens": ([0], {"labels": ((1, 2, 3, 4),)}, [1, 2, 3], Finish.LENGTH, [4]),
    # After 5 the allowed tokens are 6 and the end token 9.
    "continuing": ([0], {"labels": ((5,), (5, 6)), "end": {9}}, [5, 6], Finish.STOP, [4, 1]),
    "not continuing": ([1], {"labels": ((5,), (5, 6)), "end": {9}}, [5], Finish.STOP, [4, 1]),
}


@pytest.mark.parametrize("case", ENDS.values(), ids=ENDS)
def test_an_answer_ends(case: Any) -> None:
    drawn, options, output, finish, computed = case
    harness = Harness(lambda request, position: drawn[min(position - 4, len(drawn) - 1)])
    request = harness.ask(range(4), **options)
    assert (request.output, request.finish) == (output, finish)
    assert harness.lengths == [[count] for count in computed]


def test_the_stop_callback_sees_each_output_as_it_grows_and_ends_it() -> None:
    seen: list[list[int]] = []

    def stop(output: Any) -> bool:
        seen.append(list(output))
        return len(output) == 2

    request = Harness().ask(range(4), max_tokens=9, stop=stop)
    assert seen == [request.output[:1], request.output[:2]]
    assert request.finish is Finish.STOP


# ---- draws


def test_each_draw_of_a_request_has_its_own_seed_and_the_same_one_again() -> None:
    def seeds(**limits: Any) -> list[int]:
        harness = Harness(**limits)
        harness.submit(range(9), max_tokens=5, draw=Draw(temperature=1.0, seed=3))
        harness.ask(range(5), max_tokens=5)
        chunks = [chunk for step in harness.executor.steps for chunk in step]
        return [chunk.draw.seed for chunk in chunks if chunk.request == 0 and chunk.draw]

    assert len(set(seeds())) == 5
    assert seeds() == seeds(max_num_batched_tokens=2, block_size=1)


def test_a_sampled_draw_keeps_its_settings() -> None:
    draw = Draw(temperature=0.5, top_p=0.9, top_k=7, seed=1, allowed=(2, 3))
    harness = Harness()
    harness.ask(range(4), max_tokens=1, draw=draw)
    used = harness.executor.steps[0][0].draw
    assert used is not None
    assert (used.temperature, used.top_p, used.top_k, used.allowed) == (0.5, 0.9, 7, (2, 3))


# ---- the loop itself


def test_run_yields_each_request_once_as_it_finishes_with_the_clocks_time() -> None:
    harness = Harness()
    long, short = harness.submit(range(4), max_tokens=6), harness.submit(range(5), max_tokens=2)
    assert list(harness.engine.run()) == [short, long]
    assert short.finished_at is not None
    assert long.finished_at == harness.executor.clock.now() > short.finished_at > 0


def test_requests_may_be_submitted_while_others_run() -> None:
    harness = Harness()
    harness.submit(range(4), max_tokens=6)
    finished = []
    for request in harness.engine.run():
        finished.append(request.id)
        if len(harness.executor.requests) < 3:
            harness.submit(range(4 + request.id), max_tokens=2)
    assert finished == [0, 1, 2]


def test_a_policy_that_plans_nothing_is_a_bug_that_is_reported() -> None:
    clock = VirtualClock()
    engine = Loop(
        SimulatedExecutor(clock), EngineConfig(), clock, policy=lambda state, memo: (Plan(), memo)
    )
    engine.submit(Request(0, numbered(3), 1))
    with pytest.raises(AssertionError, match="planned nothing"):
        engine.step()


def test_a_policy_gets_its_memo_back() -> None:
    memos = []

    def counting(state: Any, memo: Any) -> Any:
        memos.append(memo)
        return sarathi(state, memo)[0], (memo or 0) + 1

    harness = Harness(policy=counting, max_num_seqs=1)
    harness.submit(range(3), 2)
    harness.ask(range(3), 1)
    assert memos == [None, 1, 2]


class Asked:
    """How many steps a policy planned, and how many there were."""

    def __init__(self, **limits: Any) -> None:
        self.planned = 0
        self.harness = Harness(policy=self._plan, **limits)

    def _plan(self, state: Any, memo: Any) -> Any:
        self.planned += 1
        return sarathi(state, memo)

    def steps(self, count: int) -> int:
        """How many of the next steps are planned."""
        before = self.planned
        for _ in range(count):
            self.harness.step()
        return self.planned - before


def test_decodes_are_planned_once_as_long_as_nothing_else_happens() -> None:
    asked = Asked()
    submit = asked.harness.submit
    requests = [submit(range(3 + number), max_tokens=30) for number in range(3)]
    assert asked.steps(20) == 2  # the prompts, and the first decodes
    requests.append(submit(range(9), max_tokens=4))
    assert asked.steps(2) == 2
    assert asked.steps(2) == 0
    assert requests[-1].finish is not None
    assert asked.steps(3) == 1  # one request fewer
    asked.harness.engine.cancel(requests[1])
    assert asked.steps(3) == 1
    asked.harness.run()
    for request in requests:
        answer = expected_output(request)
        assert request.output == answer[: len(request.output)]
        assert request is requests[1] or len(request.output) == len(answer)


def test_decodes_are_planned_each_time_while_somebody_waits() -> None:
    asked = Asked(max_num_seqs=2)
    for number in range(3):
        asked.harness.submit(range(3 + number), max_tokens=30)
    assert asked.steps(20) == 20


def test_draws_that_depend_on_the_answer_are_planned_each_time() -> None:
    rules: dict[str, Any] = {"labels": ((1, 2, 3), (2, 1, 4))}
    for options in {"draw": Draw(temperature=1.0)}, rules:
        asked = Asked()
        asked.harness.ask(range(3), **options)
        assert asked.planned == len(asked.harness.executor.steps)


def test_a_run_of_decodes_ends_where_blocks_run_out() -> None:
    asked = Asked(cache_tokens=24)
    requests = [asked.harness.submit(range(n, n + 6), max_tokens=14) for n in (0, 6)]
    asked.harness.run()
    assert_answered(*requests)
    assert asked.harness.executor.computed > 12 + 2 * 13  # one lost its blocks
    assert asked.planned < len(asked.harness.executor.steps)


def test_a_step_that_fails_in_a_run_of_decodes_is_computed_again() -> None:
    asked = Asked()
    requests = [asked.harness.submit(range(n, n + 6), max_tokens=14) for n in (0, 6)]
    asked.steps(7)
    asked.harness.fail()
    asked.harness.run()
    assert_answered(*requests)
