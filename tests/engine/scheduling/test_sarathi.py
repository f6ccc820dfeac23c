"""First come, first served."""

from __future__ import annotations

from typing import Any

from relquery.config import EngineConfig
from relquery.engine.cache.blocks import BlockPool
from relquery.engine.request.request import Request
from relquery.engine.scheduling.plan import Plan, State
from relquery.engine.scheduling.policies.sarathi import sarathi
from tests.engine.harness import numbered

SIZE = 4


def request(number: int, prompt: int) -> Request:
    return Request(number, numbered(prompt, start=1000 * number), 8)


def decoding(pool: BlockPool, number: int, prompt: int) -> Request:
    """A running request whose prompt is computed and which has one token of output."""
    one = request(number, prompt)
    blocks = pool.allocate(-(-prompt // SIZE))
    assert blocks is not None
    one.pieces[0].blocks, one.pieces[0].done, one.output = blocks, prompt, [7]
    return one


def plan(pool: BlockPool, waiting: list[Request], running: list[Request], **limits: Any) -> Plan:
    config = EngineConfig(**{"block_size": SIZE, "max_num_batched_tokens": 20, **limits})
    return sarathi(State(0.0, waiting, running, config, pool), None)[0]


def work(planned: Plan) -> list[tuple[int, int]]:
    return [(item.request.id, item.tokens) for item in planned.work]


def test_what_runs_decodes_before_what_waits_is_admitted() -> None:
    pool = BlockPool(20)
    running = [decoding(pool, 0, 5), decoding(pool, 1, 6)]
    planned = plan(pool, [request(2, 10), request(3, 30)], running)
    assert work(planned) == [(0, 1), (1, 1), (2, 10), (3, 8)]


def test_requests_are_admitted_in_order_of_arrival_and_none_overtakes() -> None:
    waiting = [request(0, 4), request(1, 40), request(2, 4)]
    planned = plan(BlockPool(6), waiting, [], max_num_batched_tokens=100)
    assert work(planned) == [(0, 4)]


def test_a_prompt_that_runs_goes_on_with_the_budget_that_is_left() -> None:
    pool = BlockPool(40)
    begun = request(0, 50)
    begun.pieces[0].blocks, begun.pieces[0].done = pool.allocate(13) or [], 20
    assert work(plan(pool, [request(1, 4)], [begun])) == [(0, 20)]


def test_the_last_admitted_is_preempted_when_blocks_run_out_and_none_is_admitted() -> None:
    pool = BlockPool(3)
    running = [decoding(pool, number, 4) for number in range(3)]
    planned = plan(pool, [request(3, 1)], running)
    assert work(planned) == [(0, 1)]
    assert [one.id for one in planned.preempt] == [2, 1]


def test_a_request_that_is_itself_the_last_admitted_is_preempted() -> None:
    pool = BlockPool(3)
    running = [decoding(pool, 0, 5), decoding(pool, 1, 4)]
    planned = plan(pool, [], running)
    assert work(planned) == [(0, 1)]
    assert [one.id for one in planned.preempt] == [1]


def test_a_plan_changes_nothing() -> None:
    pool = BlockPool(3)
    running = [decoding(pool, number, 4) for number in range(3)]
    waiting = [request(3, 1)]
    before = [(one.computed, list(one.blocks), list(one.output)) for one in running]
    first = plan(pool, waiting, running)
    assert plan(pool, waiting, running) == first
    assert [(one.computed, one.blocks, one.output) for one in running] == before
    assert pool.available == 0
    pool.check()


def test_the_memo_comes_back_as_it_was() -> None:
    memo = object()
    config = EngineConfig()
    assert sarathi(State(0.0, [], [], config, BlockPool(1)), memo) == (Plan(), memo)
