"""A replayed trace: arrivals honoured, parts of latencies, and what the client itself delays."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from relquery.engine.clock import RealClock
from relquery.prompt import Answer, Finish
from relquery.traces.replay import Ask, Replay
from relquery.traces.trace import TracedQuery

Heard = Callable[[], None]
ANSWER = Answer("x", Finish.STOP, None, 10, 4, 2)
FAILED = Answer(None, Finish.ERROR, "It failed.")


def query(arrival: float, rows: int, table: str = "t") -> TracedQuery:
    texts = tuple(f"{table}{row}" for row in range(rows))
    return TracedQuery(arrival, "filter", table, "? ", texts, 5, (2,) * rows)


def replay(queries: list[TracedQuery], ask: Ask, concurrency: int = 100) -> Replay:
    replayed = Replay(queries, ask, RealClock(), concurrency)
    asyncio.run(replayed.run())
    return replayed


async def at_once(query: TracedQuery, prompt: str, heard: Heard) -> Answer:
    heard()
    return ANSWER


def test_every_prompt_is_asked_once_and_none_before_its_relquery_arrives() -> None:
    asked: list[str] = []

    async def ask(query: TracedQuery, prompt: str, heard: Heard) -> Answer:
        asked.append(prompt)
        return await at_once(query, prompt, heard)

    queries = [query(0.0, 2, "a"), query(0.03, 1, "b"), query(0.06, 3, "c")]
    replayed = replay(queries, ask)
    assert asked == ["? a0", "? a1", "? b0", "? c0", "? c1", "? c2"]
    for one, requests in zip(queries, replayed.asked, strict=True):
        assert all(request is not None and request.sent >= one.arrival for request in requests)
    assert [outcome.query for outcome in replayed.outcomes] == queries
    assert [outcome.prompt_tokens for outcome in replayed.outcomes] == [20, 10, 30]
    assert replayed.ended.seconds >= 0.06


def test_a_relquery_is_sent_whether_or_not_those_before_have_ended() -> None:
    arrived = asyncio.Event()

    async def ask(query: TracedQuery, prompt: str, heard: Heard) -> Answer:
        if query.table == "b":
            arrived.set()
        await arrived.wait()
        return await at_once(query, prompt, heard)

    assert len(replay([query(0.0, 1, "a"), query(0.01, 1, "b")], ask).outcomes) == 2


def test_the_parts_of_a_latency_are_bounded_by_first_tokens_and_add_up() -> None:
    async def ask(query: TracedQuery, prompt: str, heard: Heard) -> Answer:
        row = int(prompt[-1])
        await asyncio.sleep(0.01 * (row + 1))
        heard()
        heard()  # what comes later is no first token
        await asyncio.sleep(0.01)
        return ANSWER

    replayed = replay([query(0.02, 3)], ask)
    (outcome,), (requests,) = replayed.outcomes, replayed.asked
    latency = outcome.latency
    heard = [request.heard for request in requests if request and request.heard]
    assert len(heard) == 3
    assert 0.01 <= latency.waiting == min(heard) - 0.02
    assert latency.core == max(heard) - min(heard)
    assert latency.tail >= 0.01
    ended = max(request.ended for request in requests if request)
    assert latency.total == pytest.approx(ended - 0.02)


def test_a_failed_request_ends_its_relquery_too() -> None:
    async def ask(query: TracedQuery, prompt: str, heard: Heard) -> Answer:
        return FAILED if prompt.endswith("0") else await at_once(query, prompt, heard)

    replayed = replay([query(0.0, 1, "a"), query(0.0, 2, "b")], ask)
    none, half = replayed.outcomes
    assert (none.latency.core, none.latency.tail) == (0, 0)
    assert none.latency.waiting > 0
    assert (half.prompt_tokens, half.cached_tokens, half.output_tokens) == (10, 4, 2)


def test_requests_beyond_the_concurrency_wait_and_are_counted() -> None:
    running = peak = 0

    async def ask(query: TracedQuery, prompt: str, heard: Heard) -> Answer:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0.001)
        running -= 1
        return await at_once(query, prompt, heard)

    assert replay([query(0.0, 5)], ask, concurrency=2).held == 3
    assert peak == 2
    assert replay([query(0.0, 5)], ask, concurrency=5).held == 0


def test_it_is_measured_how_late_a_busy_client_sends() -> None:
    async def ask(query: TracedQuery, prompt: str, heard: Heard) -> Answer:
        time.sleep(0.02)
        return await at_once(query, prompt, heard)

    assert replay([query(0.0, 3)], ask).lag >= 0.04


def test_a_cancelled_replay_cancels_its_requests_and_keeps_what_has_ended() -> None:
    left: set[str] = set()
    all_asked = asyncio.Event()

    async def ask(query: TracedQuery, prompt: str, heard: Heard) -> Answer:
        if query.table == "b":
            if prompt == "? b1":
                all_asked.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                left.add(prompt)
                raise
        return await at_once(query, prompt, heard)

    async def stopped(replayed: Replay) -> None:
        work = asyncio.create_task(replayed.run())
        await all_asked.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    queries = [query(0.0, 1, "a"), query(0.0, 2, "b"), query(60.0, 1, "c")]
    replayed = Replay(queries, ask, RealClock(), 100)
    asyncio.run(stopped(replayed))
    assert left == {"? b0", "? b1"}
    assert [outcome.query.table for outcome in replayed.ended.outcomes] == ["a"]
    assert replayed.asked[1:] == [[None, None], [None]]


def test_what_the_client_raises_ends_the_replay() -> None:
    async def ask(query: TracedQuery, prompt: str, heard: Heard) -> Answer:
        raise LookupError("no such model")

    with pytest.raises(LookupError, match="no such model"):
        replay([query(0.0, 2), query(60.0, 1)], ask)


def test_progress_is_told_request_by_request_and_one_without_rows_is_passed_over() -> None:
    told: list[tuple[int, int]] = []
    queries = [query(0.0, 2), query(0.0, 0), query(0.0, 1)]
    replayed = Replay(queries, at_once, RealClock(), 9, lambda *counts: told.append(counts))
    asyncio.run(replayed.run())
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert len(replayed.outcomes) == 2
