"""Requests that all fail alike end the query; one that fails by itself is its row's error."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import product

import pytest

from relquery.backends.provider.errors import RequestFailure
from relquery.backends.provider.failure_policy import ENOUGH, FailFastError, FailurePolicy
from relquery.prompt import Answer, Finish

GOOD = Answer("yes", Finish.STOP)
BAD = Answer(None, Finish.ERROR, "no")
ALIKE = RequestFailure("400", "400: no temperature.")
OTHER = RequestFailure("500", "500: kaput.")
OWN = RequestFailure("", "too long", "prompt")
MODEL = RequestFailure("404", "no such model", "model")
SERVER = RequestFailure("503", "busy", "server")

Ending = RequestFailure | None


def run(endings: Sequence[Ending], concurrency: int = 1) -> tuple[list[int], int, str | None]:
    """(indexes delivered, how many were asked, what it was stopped by) of requests so ended."""
    delivered: list[int] = []
    asked = 0

    async def go() -> None:
        nonlocal asked
        begun = iter(range(len(endings)))
        policy = FailurePolicy("http://x/", 5, 8, lambda index, _: delivered.append(index))

        async def work() -> None:
            nonlocal asked
            while True:
                await policy.wait_for_prompts()
                if not policy.is_open_to_prompts:
                    continue
                index = next(begun, None)
                if index is None:
                    return
                policy.begin(index)
                asked += 1
                await asyncio.sleep(0)
                ending = endings[index]
                policy.end(index, GOOD if ending is None else BAD, ending)

        async with asyncio.TaskGroup() as workers:
            for _ in range(concurrency):
                workers.create_task(work())
        policy.finish()

    try:
        asyncio.run(go())
    except (FailFastError, ExceptionGroup) as error:
        first = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
        assert isinstance(first, FailFastError)
        return delivered, asked, str(first)
    return delivered, asked, None


@pytest.mark.parametrize("concurrency", [1, 2, 5, 16])
def test_failures_that_are_all_alike_stop_after_a_few(concurrency: int) -> None:
    delivered, asked, reason = run([ALIKE] * 40, concurrency)
    assert delivered == []
    assert asked == max(ENOUGH, concurrency)
    assert reason == f"The first {asked} requests to http://x/ all failed alike. {ALIKE.reason}"


def test_others_are_each_an_error_of_its_own() -> None:
    cases: list[list[Ending]] = [
        [None] * 20,
        [None, *[ALIKE] * 39],
        [*[ALIKE] * 4, None, *[ALIKE] * 20],
        [*[ALIKE, OTHER] * 10],
        [*[OWN] * 20, None],
        [*[OWN] * 20, ALIKE],
        [*[ALIKE] * 4],
        [None, MODEL, MODEL],
        [None, *[SERVER, None] * 20],
        [None, *[SERVER] * 7, ALIKE, *[SERVER] * 7],
        [OWN, *[ALIKE] * 3],
        [],
    ]
    for endings, concurrency in product(cases, (1, 4, 16)):
        delivered, asked, reason = run(endings, concurrency)
        assert reason is None
        assert sorted(delivered) == list(range(asked)) == list(range(len(endings)))


def test_an_answer_among_those_under_way_saves_the_others() -> None:
    endings = [*[ALIKE] * 15, None, *[ALIKE] * 24]
    delivered, asked, reason = run(endings, 16)
    assert (sorted(delivered), asked, reason) == (list(range(40)), 40, None)


@pytest.mark.parametrize("count", [1, 3, 40])
def test_a_model_that_is_not_served_needs_no_more_than_all_of_a_few(count: int) -> None:
    delivered, asked, reason = run([MODEL] * count, 2)
    assert (delivered, asked, reason) == ([], min(count, ENOUGH), "no such model")


def test_a_server_that_goes_away_is_given_up_after_some_patience() -> None:
    delivered, asked, reason = run([None, *[SERVER] * 99])
    assert (delivered, asked) == (list(range(8)), 9)
    assert reason == "The last 8 requests to http://x/ failed. busy"
