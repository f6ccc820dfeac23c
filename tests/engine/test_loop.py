"""The engine: requests go in, steps run, each request comes out once with its answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf, log
from random import Random
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from relquery.config import EngineConfig
from relquery.engine import executor as clock_module
from relquery.engine.cost import LinearCost
from relquery.engine.executor import Chunk, PacedClock, Segment, SimulatedExecutor, VirtualClock
from relquery.engine.loop import ARRIVALS, Loop
from relquery.engine.requests.request import Draw, Request
from relquery.engine.scheduling.plan import Plan
from relquery.engine.scheduling.policies.steps import sarathi
from relquery.errors import PromptTooLongError, RequestError
from relquery.prompt import Finish, TokenLogprob
from tests.engine.harness import (
    VOCABULARY,
    BrokenError,
    Harness,
    answer_of,
    assert_answered,
    expected_output,
    for_each,
    numbered,
)
from tests.engine.scenarios import Scenario, scenarios


def test_the_reference_of_these_tests_is_no_constant() -> None:
    assert len({answer_of(r, p) for r in range(3) for p in range(9)}) > 2


@pytest.mark.parametrize("scenario", scenarios(__file__), ids=str)
def test_scenarios(scenario: Scenario) -> None:
    scenario.run()


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


# ---- grammars

ANY = tuple(range(VOCABULARY))
END = frozenset({VOCABULARY})


# ---- log-probabilities

LABELS = ((1, 2, 3), (1, 2, 4), (1, 0), (3,))
OTHERS: dict[str, dict[str, Any]] = {
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


@for_each("limits", OTHERS.values())
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


# ---- clocks


def test_the_virtual_clock_moves_only_when_told_to() -> None:
    clock = VirtualClock()
    assert clock.now() == clock.now() == 0
    clock.advance(1.5)
    clock.advance(0)
    assert clock.now() == 1.5
    with pytest.raises(ValueError, match="cannot go back"):
        VirtualClock().advance(-0.1)


# ---- paced


class FakeTime:
    """A `time` module whose time passes in sleeps and by hand. late: of a sleep's end."""

    def __init__(self) -> None:
        self.now, self.late = 100.0, 0.0
        self.slept: list[float] = []
        self.error: BaseException | None = None

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if self.error is not None:
            self.now += seconds / 4
            raise self.error
        self.now += seconds + self.late


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    fake = FakeTime()
    monkeypatch.setattr(clock_module, "time", fake)
    return fake


def began(fake: FakeTime, since: Callable[[], float] = lambda: -inf) -> PacedClock:
    """A clock whose first step, of a second, has ended."""
    clock = PacedClock(lambda: max(100.0, since()))
    clock.advance(1.0)
    assert fake.now == 101.0
    return clock


def test_time_between_two_steps_is_a_part_of_the_second(fake: FakeTime) -> None:
    clock = began(fake)
    for end in (102.0, 103.0, 104.0):
        fake.now += 0.25
        clock.advance(1.0)
        assert clock.now() == end
    assert fake.slept == [1.0, 0.75, 0.75, 0.75]


def test_a_sleep_that_lasts_too_long_shortens_the_next(fake: FakeTime) -> None:
    clock = began(fake)
    fake.late = 0.125
    for _ in range(10):
        clock.advance(1.0)
    assert fake.now == 111.125


def test_where_the_caller_is_slower_than_the_machine_nothing_is_waited_for_nor_owed(
    fake: FakeTime,
) -> None:
    clock = began(fake)
    for _ in range(5):
        fake.now += 3.0
        clock.advance(1.0)
    assert fake.slept == [1.0]
    clock.advance(1.0)
    assert fake.slept == [1.0, 1.0]


def test_idle_time_before_the_work_came_is_no_part_of_a_step(fake: FakeTime) -> None:
    came = 0.0
    clock = began(fake, lambda: came)
    came = 101.5
    fake.now = 101.75
    clock.advance(1.0)
    assert fake.now == 102.5


def test_work_that_is_to_come_in_the_future_begins_now(fake: FakeTime) -> None:
    clock = began(fake, lambda: 150.0 if fake.slept else 0.0)
    clock.advance(1.0)
    assert fake.now == 102.0


def test_a_step_that_is_interrupted_ends_there(fake: FakeTime) -> None:
    clock = began(fake)
    fake.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        clock.advance(1.0)
    fake.error = None
    assert fake.now == 101.25
    clock.advance(1.0)
    assert fake.now == 102.25


# ---- the simulated executor

STEPS = LinearCost(0.01, 1.0, 0.1, 0.5, 0.0001)


def chunk_of(tokens: int, context: int = 0, draw: Draw | None = None, request: int = 0) -> Chunk:
    segments = (Segment(np.arange(context)),) if context else ()
    writes = np.arange(context, context + tokens)
    return Chunk(request, numbered(tokens), context, segments, writes, draw)


def test_a_step_takes_as_long_as_the_cost_model_says() -> None:
    executor = SimulatedExecutor(VirtualClock(), STEPS)
    executor.execute([chunk_of(20), chunk_of(5, context=10), chunk_of(1, context=100)])
    assert executor.clock.now() == pytest.approx(1.0 + 25 * 0.01 + 0.1 + 110 * 0.0001)


def test_a_token_is_drawn_only_where_one_is_wanted() -> None:
    executor = SimulatedExecutor(VirtualClock(), STEPS, lambda request, at: request * 100 + at)
    chunks = [
        chunk_of(3, 4, Draw(), request=1),
        chunk_of(3, request=2),
        chunk_of(1, 8, Draw(), request=3),
    ]
    assert executor.execute(chunks) == [107, None, 309]


def test_arrival_and_end_are_read_from_the_clock_that_the_engine_was_given() -> None:
    harness = Harness()
    early = harness.ask(range(4), max_tokens=1)
    late = harness.ask(range(4), max_tokens=1)
    assert early.arrival == 0
    assert early.finished_at == late.arrival > 0
    assert late.finished_at == harness.executor.clock.now() > late.arrival


def test_the_policy_is_told_of_many_arrivals_as_they_come() -> None:
    harness = Harness()
    for number in range(3 * ARRIVALS):
        harness.submit([number % 50, number], max_tokens=1)
        assert len(harness.engine.waiting.changes) < ARRIVALS
    assert harness.planned == 3
    assert not harness.engine.running
    harness.run()
    assert_answered(*harness.finished)
