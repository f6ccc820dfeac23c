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
from tests.engine.harness import BrokenError, Harness, answer_of, expected_output, numbered


def fail(harness: Harness) -> None:
    """Run a step that fails."""
    harness.executor.failure = BrokenError()
    with pytest.raises(BrokenError):
        harness.step()


def lengths(harness: Harness) -> list[list[int]]:
    """Tokens of each chunk of each step."""
    return [[len(chunk.tokens) for chunk in step] for step in harness.executor.steps]


def assert_answered(*requests: Request) -> None:
    for request in requests:
        assert request.finish is not None
        assert request.output == expected_output(request)


# ---- prefix caching


def test_a_later_request_computes_only_what_follows_the_shared_full_blocks() -> None:
    harness = Harness()
    first = harness.submit([*range(10), 3], max_tokens=1)
    harness.run()
    second = harness.submit([*range(10), 4], max_tokens=1)
    harness.run()
    assert (first.cached, second.cached) == (0, 8)
    assert lengths(harness) == [[11], [3]]
    assert_answered(first, second)


def test_with_prefix_caching_off_nothing_is_served_from_the_cache() -> None:
    harness = Harness(prefix_caching=False)
    for _ in range(2):
        harness.submit(range(12), max_tokens=2)
        harness.submit(range(12), max_tokens=2)
        harness.run()
    assert [request.cached for request in harness.finished] == [0, 0, 0, 0]
    assert harness.executor.computed == 4 * 13
    assert harness.engine.pool.evict(100) == 0
    assert_answered(*harness.finished)


def test_requests_submitted_together_compute_their_shared_prefix_once() -> None:
    harness = Harness()
    requests = [harness.submit([*range(20), 30 + tail], max_tokens=1) for tail in range(3)]
    harness.run()
    assert lengths(harness) == [[21, 1, 1]]
    assert [request.cached for request in requests] == [0, 20, 20]
    assert_answered(*requests)


def test_equal_prompts_in_one_step_share_all_but_the_last_block() -> None:
    harness = Harness()
    requests = [harness.submit(range(8), max_tokens=1) for _ in range(2)]
    harness.run()
    assert lengths(harness) == [[8, 4]]
    assert_answered(*requests)


def test_answers_are_shared_prefixes_too() -> None:
    harness = Harness()
    first = harness.submit(range(6), max_tokens=6)
    harness.run()
    second = harness.submit([*range(6), *first.output, 9], max_tokens=1)
    harness.run()
    # The last token of an answer is not computed, so block 2 (tokens 8..11) is not complete.
    assert second.cached == 8
    assert_answered(first, second)


def test_a_request_admitted_as_a_single_token_completes_a_shared_block_computes_the_rest() -> None:
    harness = Harness(max_num_batched_tokens=7)
    first = harness.submit(range(8))
    harness.step()
    second = harness.submit([*range(8), 9, 9, 9, 9])
    harness.run()
    assert lengths(harness)[:2] == [[7], [1, 4]]
    assert_answered(first, second)


def test_cached_blocks_that_a_step_counts_on_are_not_evicted_within_it() -> None:
    # 12 blocks: 3 cached ones that are next in line for eviction, 4 newer ones, 5 free. The first
    # request of the step takes 7, the others count on the 3 old ones.
    harness = Harness(cache_tokens=48)
    for prompt in (range(12), range(100, 116)):
        harness.submit(prompt, max_tokens=1)
        harness.run()
    requests = [
        harness.submit(range(200, 227), max_tokens=1),
        harness.submit([*range(12), 20], max_tokens=1),
        harness.submit([*range(12), 21], max_tokens=1),
    ]
    harness.run()
    assert lengths(harness)[2:] == [[27, 1, 1]]
    assert [request.cached for request in requests] == [0, 12, 12]
    assert_answered(*requests)


@pytest.mark.parametrize("blocks", range(6, 20))
def test_the_copies_of_blocks_that_one_step_needs_at_two_positions_are_planned(blocks: int) -> None:
    harness = Harness(block_size=2, cache_tokens=2 * blocks, relocation="cidra")
    span = (0, 1, 2, 3, 4)
    harness.submit([span, 0], 1)
    harness.run()
    # The first moves the cached blocks away from where the others need them.
    harness.submit([(1, 2), span, 0], 1)
    harness.submit([span, 0], 1)
    harness.submit([span, 5], 1)
    assert_answered(*harness.run())


def test_evicted_blocks_are_computed_again() -> None:
    harness = Harness()
    harness.submit(range(9), max_tokens=1)
    harness.run()
    harness.engine.pool.evict(100)
    again = harness.submit(range(9), max_tokens=1)
    harness.run()
    assert again.cached == 0
    assert_answered(again)


# ---- limits


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
    assert all(sum(step) <= budget and len(step) <= seqs for step in lengths(harness))
    assert_answered(*harness.executor.requests.values())


def test_a_long_prompt_is_computed_in_chunks_of_the_token_budget() -> None:
    harness = Harness(max_num_batched_tokens=8)
    request = harness.submit(range(21), max_tokens=2)
    harness.run()
    assert lengths(harness) == [[8], [8], [5], [1]]
    assert_answered(request)


def test_a_chunk_that_does_not_end_the_prompt_draws_no_token() -> None:
    harness = Harness(max_num_batched_tokens=8)
    harness.submit(range(20), max_tokens=1)
    harness.run()
    draws = [chunk.draw for step in harness.executor.steps for chunk in step]
    assert [draw is not None for draw in draws] == [False, False, True]


def test_decodes_go_on_while_a_prompt_is_computed_in_chunks() -> None:
    harness = Harness(max_num_batched_tokens=8)
    short = harness.submit(range(4), max_tokens=5)
    long = harness.submit(numbered(20, start=50), max_tokens=1)
    harness.run()
    assert lengths(harness) == [[4, 4], [1, 7], [1, 7], [1, 2], [1]]
    assert_answered(short, long)


# ---- preemption


@pytest.mark.parametrize("caching", [True, False])
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
    harness.run()
    assert harness.finished == [first, second, third]


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


def test_a_request_may_fill_the_whole_pool() -> None:
    harness = Harness(cache_tokens=16)
    request = harness.submit(range(10), max_tokens=100)
    harness.run()
    assert (len(request.output), request.finish) == (6, Finish.LENGTH)


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
    second = harness.submit(range(20))
    harness.run()
    assert second.cached == 4
    assert_answered(second)


def test_cancelling_what_has_ended_changes_nothing() -> None:
    harness = Harness()
    request = harness.submit(range(4), max_tokens=1)
    harness.run()
    assert not harness.engine.cancel(request)
    assert request.finish is Finish.LENGTH


# ---- failure


@pytest.mark.parametrize("failure", [BrokenError(), KeyboardInterrupt(), SystemExit(1)])
@pytest.mark.parametrize("at", [0, 1, 2, 4])
def test_after_a_failed_step_the_engine_goes_on_and_loses_nothing(
    failure: BaseException, at: int
) -> None:
    harness = Harness(max_num_batched_tokens=16)
    requests = [harness.submit([*range(10), tail], max_tokens=4) for tail in range(3)]
    for _ in range(at):
        harness.step()
    harness.executor.failure = failure
    with pytest.raises(type(failure)):
        harness.step()
    harness.check()
    assert harness.engine.pool.held == 0
    assert list(harness.engine.waiting) == [r for r in requests if r not in harness.finished]
    harness.run()
    assert_answered(*requests)


def test_what_a_failed_step_was_to_write_is_not_found() -> None:
    harness = Harness()
    first = harness.submit(range(12), max_tokens=1)
    fail(harness)
    harness.engine.cancel(first)
    second = harness.submit(range(12), max_tokens=1)
    harness.run()
    assert second.cached == 0
    assert_answered(second)


def test_what_was_computed_before_a_failed_step_is_still_found() -> None:
    harness = Harness(max_num_batched_tokens=8)
    request = harness.submit(range(20), max_tokens=1)
    harness.step()
    fail(harness)
    harness.run()
    assert lengths(harness) == [[8], [8], [8], [4]]
    assert_answered(request)


# ---- what cannot be served


def test_a_prompt_that_leaves_no_room_for_an_answer_is_refused() -> None:
    harness = Harness(cache_tokens=16)
    with pytest.raises(PromptTooLongError, match=r"has 16 tokens; the KV cache has room for 15"):
        harness.submit(range(16))
    accepted = harness.submit(range(15), max_tokens=5)
    harness.run()
    assert (len(accepted.output), accepted.finish) == (1, Finish.LENGTH)


def test_an_empty_prompt_is_refused() -> None:
    harness = Harness()
    with pytest.raises(RequestError, match="no tokens"):
        harness.submit([])
    assert not harness.engine.waiting


def test_a_refused_prompt_costs_the_others_nothing() -> None:
    harness = Harness(cache_tokens=16)
    first = harness.submit(range(6))
    with pytest.raises(PromptTooLongError):
        harness.submit(range(40))
    second = harness.submit(range(7))
    assert harness.run() == [first, second]


def test_the_cache_capacity_is_rounded_down_to_whole_blocks() -> None:
    assert Harness(cache_tokens=19, block_size=4).engine.capacity == 16


# ---- how an answer ends


def test_an_answer_that_reaches_its_bound_ends_by_length() -> None:
    harness = Harness()
    request = harness.submit(range(4), max_tokens=3)
    harness.run()
    assert (len(request.output), request.finish) == (3, Finish.LENGTH)


def test_an_end_token_stops_the_answer_and_is_not_part_of_it() -> None:
    tokens = [3, 4, 9, 5]
    harness = Harness(lambda request, position: tokens[position - 4])
    request = harness.submit(range(4), max_tokens=8, end=frozenset({9, 8}))
    harness.run()
    assert (request.output, request.finish) == ([3, 4], Finish.STOP)


def test_an_end_token_at_once_gives_an_empty_answer() -> None:
    harness = Harness(lambda request, position: 9)
    request = harness.submit(range(4), end=frozenset({9}))
    harness.run()
    assert (request.output, request.finish) == ([], Finish.STOP)


def test_an_end_token_where_the_bound_is_reached_still_counts_as_stop() -> None:
    tokens = [3, 4, 9]
    harness = Harness(lambda request, position: tokens[position - 4])
    request = harness.submit(range(4), max_tokens=3, end=frozenset({9}))
    harness.run()
    assert (request.output, request.finish) == ([3, 4], Finish.STOP)


def test_the_stop_callback_sees_each_output_as_it_grows_and_ends_it() -> None:
    seen: list[list[int]] = []

    def stop(output: Any) -> bool:
        seen.append(list(output))
        return len(output) == 2

    harness = Harness()
    request = harness.submit(range(4), max_tokens=9, stop=stop)
    harness.run()
    assert seen == [request.output[:1], request.output[:2]]
    assert request.finish is Finish.STOP


def test_a_choice_that_is_complete_ends_the_answer_without_an_end_token() -> None:
    harness = Harness()
    request = harness.submit(range(4), max_tokens=9, labels=((1, 2), (1, 3)))
    harness.run()
    assert tuple(request.output) in request.rules.labels
    assert request.finish is Finish.STOP


def test_tokens_that_choices_leave_no_choice_about_cost_no_step() -> None:
    harness = Harness()
    request = harness.submit(range(4), max_tokens=9, labels=((1, 2, 3, 4), (5, 6, 7, 8, 9)))
    harness.run()
    assert tuple(request.output) in request.rules.labels
    assert lengths(harness) == [[4]]


def test_forced_tokens_are_computed_together_once_there_is_a_choice_again() -> None:
    choices = ((1, 2, 3, 4), (1, 2, 3, 5))
    harness = Harness()
    request = harness.submit(range(4), max_tokens=9, labels=choices)
    harness.run()
    assert lengths(harness) == [[4], [3]]
    assert tuple(request.output) in choices


def test_forced_tokens_do_not_pass_the_bound() -> None:
    harness = Harness()
    request = harness.submit(range(4), max_tokens=2, labels=((1, 2, 3, 4),))
    harness.run()
    assert (request.output, request.finish) == ([1, 2], Finish.LENGTH)


@pytest.mark.parametrize(("pick", "output"), [(0, [5, 6]), (1, [5])])
def test_a_choice_that_another_continues_can_be_ended(pick: int, output: list[int]) -> None:
    # After 5 the allowed tokens are 6 and the end token 9; `pick` is the one drawn.
    harness = Harness(lambda request, position: pick)
    request = harness.submit(range(4), labels=((5,), (5, 6)), end=frozenset({9}))
    harness.run()
    assert (request.output, request.finish) == (output, Finish.STOP)


# ---- draws


def test_each_draw_of_a_request_has_its_own_seed_and_the_same_one_again() -> None:
    def seeds(**limits: Any) -> list[int]:
        harness = Harness(**limits)
        harness.submit(range(9), max_tokens=5, draw=Draw(temperature=1.0, seed=3))
        harness.submit(range(5), max_tokens=5)
        harness.run()
        chunks = [chunk for step in harness.executor.steps for chunk in step]
        return [chunk.draw.seed for chunk in chunks if chunk.request == 0 and chunk.draw]

    assert len(set(seeds())) == 5
    assert seeds() == seeds(max_num_batched_tokens=2, block_size=1)


def test_a_sampled_draw_keeps_its_settings() -> None:
    draw = Draw(temperature=0.5, top_p=0.9, top_k=7, seed=1, allowed=(2, 3))
    harness = Harness()
    harness.submit(range(4), max_tokens=1, draw=draw)
    harness.run()
    used = harness.executor.steps[0][0].draw
    assert used is not None
    assert (used.temperature, used.top_p, used.top_k, used.allowed) == (0.5, 0.9, 7, (2, 3))


# ---- the loop itself


def test_run_yields_each_request_once_as_it_finishes() -> None:
    harness = Harness()
    long, short = harness.submit(range(4), max_tokens=6), harness.submit(range(5), max_tokens=2)
    assert list(harness.engine.run()) == [short, long]


def test_requests_may_be_submitted_while_others_run() -> None:
    harness = Harness()
    harness.submit(range(4), max_tokens=6)
    finished = []
    for request in harness.engine.run():
        finished.append(request.id)
        if len(harness.executor.requests) < 3:
            harness.submit(range(4 + request.id), max_tokens=2)
    assert finished == [0, 1, 2]


def test_the_end_is_read_from_the_clock() -> None:
    harness = Harness()
    request = harness.submit(range(4), max_tokens=1)
    harness.run()
    assert request.finished_at == harness.executor.clock.now() > 0


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

    clock = VirtualClock()
    limits = EngineConfig(max_num_seqs=1)
    engine = Loop(SimulatedExecutor(clock), limits, clock, policy=counting)
    engine.submit(Request(0, numbered(3), 2))
    engine.submit(Request(1, numbered(3), 1))
    list(engine.run())
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
    for draw, rules in (Draw(temperature=1.0), {}), (Draw(), {"labels": ((1, 2, 3), (2, 1, 4))}):
        asked = Asked()
        asked.harness.submit(range(3), max_tokens=3, draw=draw, **rules)
        asked.harness.run()
        assert asked.planned == len(asked.harness.executor.steps)


def test_a_run_of_decodes_ends_where_blocks_run_out() -> None:
    asked = Asked(cache_tokens=24)
    first, second = (asked.harness.submit(range(n, n + 6), max_tokens=14) for n in (0, 6))
    asked.harness.run()
    assert [first.output, second.output] == [expected_output(first), expected_output(second)]
    computed = asked.harness.executor.computed
    assert computed > 12 + 2 * 13  # one lost its blocks
    assert asked.planned < len(asked.harness.executor.steps)


def test_a_step_that_fails_in_a_run_of_decodes_is_computed_again() -> None:
    asked = Asked()
    first, second = (asked.harness.submit(range(n, n + 6), max_tokens=14) for n in (0, 6))
    asked.steps(7)
    fail(asked.harness)
    asked.harness.run()
    assert [first.output, second.output] == [expected_output(first), expected_output(second)]


def test_the_reference_of_these_tests_is_no_constant() -> None:
    assert len({answer_of(r, p) for r in range(3) for p in range(9)}) > 2


@pytest.mark.parametrize("count", [0, -3])
def test_a_request_without_room_for_an_answer_is_refused(count: int) -> None:
    harness = Harness()
    with pytest.raises(RequestError, match=f"max_tokens is {count}; it must be at least 1"):
        harness.submit(range(3), max_tokens=count)
    assert not harness.engine.waiting


def test_a_request_may_count_on_what_one_that_lost_its_blocks_fills_in_the_same_step() -> None:
    harness = Harness(block_size=1)
    first = harness.submit(range(5), max_tokens=6)
    harness.step()
    fail(harness)
    second = harness.submit([*range(5), *first.output, 7])
    harness.step()
    assert second.cached == 6
    harness.run()
    assert [each.output for each in (first, second)] == list(map(expected_output, (first, second)))
