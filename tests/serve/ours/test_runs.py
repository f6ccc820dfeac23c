"""Tasks run in threads beside the event loop, so many at once, and can be ended."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from relquery.errors import CancelledError
from relquery.serve.answering import ClientGoneError
from relquery.serve.errors import HttpError
from relquery.serve.ours.runs import Run, Runs


class Asked:
    """A request whose client leaves when it is told to."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}


def in_loop(test: Callable[[Runs], Coroutine[Any, Any, None]], **sizes: int) -> None:
    runs = Runs(**sizes)
    try:
        asyncio.run(asyncio.wait_for(test(runs), 20))
    finally:
        runs.close()


def wait_for_stop(run: Run[int]) -> int:
    """A task that ends only when it is stopped."""
    stopped = threading.Event()
    with run.stopping.stops(stopped.set):
        assert stopped.wait(20)
        run.stopping.check()
    return 1


def test_a_task_gives_what_it_tells_and_then_its_result_or_what_it_raises() -> None:
    def three(run: Run[int]) -> int:
        run.tell({"at": 1})
        run.tell({"at": 2})
        return 3

    def error(run: Run[int]) -> int:
        raise KeyError(str(run.stopping.ended.is_set()))

    def interrupted(run: Run[int]) -> int:
        raise KeyboardInterrupt

    async def test(runs: Runs) -> None:
        run = runs.start(three)
        assert [await run.news() for _ in range(3)] == [{"at": 1}, {"at": 2}, None]
        assert await run.result() == 3
        with pytest.raises(KeyError, match="False"):
            await runs.start(error).result()
        with pytest.raises(CancelledError, match="interrupted"):  # and not the event loop
            await runs.start(interrupted).result()
        with pytest.raises(CancelledError, match=r"longer than 0\.05 seconds"):
            await runs.start(wait_for_stop, 0.05).result()

    in_loop(test)


def test_a_client_that_leaves_ends_its_task() -> None:
    async def test(runs: Runs) -> None:
        asked = Asked()
        run = runs.start(wait_for_stop)
        asyncio.get_running_loop().call_later(0.05, asked.gone.set)
        with pytest.raises(ClientGoneError):
            await run.whole(asked)  # type: ignore[arg-type]
        assert await asyncio.to_thread(run.stopping.ended.wait, 10)

    in_loop(test)


def test_tasks_beyond_those_that_may_wait_are_refused() -> None:
    async def test(runs: Runs) -> None:
        open_ = [runs.start(wait_for_stop) for _ in range(3)]
        with pytest.raises(HttpError) as refused:
            runs.start(wait_for_stop)
        assert refused.value.status == 429
        assert refused.value.headers["Retry-After"] == "1"
        for run in open_:
            run.leave()
            assert await asyncio.to_thread(run.stopping.ended.wait, 10)
        assert await _soon(lambda: runs.start(lambda _: 7)).result() == 7

    in_loop(test, at_once=1, most_waiting=2)


def test_no_more_tasks_run_at_once_than_may() -> None:
    running, most, lock = 0, 0, threading.Lock()

    async def test(runs: Runs) -> None:
        def task(run: Run[int]) -> int:
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
            time.sleep(0.02)
            with lock:
                running -= 1
            return 0

        await asyncio.gather(*(runs.start(task).result() for _ in range(10)))

    in_loop(test, at_once=3, most_waiting=10)
    assert most == 3


def _soon(make: Callable[[], Run[int]]) -> Run[int]:
    """A task is counted until just after it has ended."""
    for _ in range(200):
        try:
            return make()
        except HttpError:
            time.sleep(0.01)
    return make()
