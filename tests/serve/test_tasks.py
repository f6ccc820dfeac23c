"""Tasks run in threads beside the event loop, so many at once, and can be ended."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from relquery.errors import CancelledError
from relquery.serve.errors import HttpError
from relquery.serve.server import RequestScope
from relquery.serve.streaming import ClientGoneError
from relquery.serve.tasks import MOST_TOLD, Task, TaskPool


class Asked:
    """A request whose client leaves when it is told to."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}


def stays() -> RequestScope:
    return cast(RequestScope, Asked())


def in_loop(
    test: Callable[[TaskPool], Coroutine[Any, Any, None]], at_once: int = 8, most_waiting: int = 64
) -> None:
    pool = TaskPool(lambda tenant: at_once, most_waiting)
    try:
        asyncio.run(asyncio.wait_for(test(pool), 20))
    finally:
        pool.close()


def wait_for_stop(task: Task[int]) -> int:
    """A task that ends only when it is stopped."""
    stopped = threading.Event()
    with task.stopping.stops(stopped.set):
        assert stopped.wait(20)
        task.stopping.check()
    return 1


def test_a_task_gives_what_it_tells_and_then_its_result_or_what_it_raises() -> None:
    def three(task: Task[int]) -> int:
        task.tell({"at": 1})
        task.tell({"at": 2})
        return 3

    def error(task: Task[int]) -> int:
        raise KeyError(str(task.stopping.ended.is_set()))

    def interrupted(task: Task[int]) -> int:
        raise KeyboardInterrupt

    async def test(pool: TaskPool) -> None:
        task = pool.start(three)
        told = []
        while events := await task.some():
            told += events
        assert told == [{"at": 1}, {"at": 2}]
        assert task.value == 3
        with pytest.raises(KeyError, match="False"):
            await pool.start(error).result(stays())
        with pytest.raises(CancelledError, match="interrupted"):  # and not the event loop
            await pool.start(interrupted).result(stays())
        with pytest.raises(CancelledError, match=r"longer than 0\.05 seconds"):
            await pool.start(wait_for_stop, 0.05).result(stays())

    in_loop(test)


def test_a_client_that_leaves_ends_its_task() -> None:
    async def test(pool: TaskPool) -> None:
        asked = Asked()
        task = pool.start(wait_for_stop)
        asyncio.get_running_loop().call_later(0.05, asked.gone.set)
        with pytest.raises(ClientGoneError):
            await task.result(cast(RequestScope, asked))
        assert await asyncio.to_thread(task.stopping.ended.wait, 10)

    in_loop(test)


def test_tasks_beyond_those_that_may_wait_are_refused() -> None:
    async def test(pool: TaskPool) -> None:
        open_ = [pool.start(wait_for_stop) for _ in range(3)]
        with pytest.raises(HttpError) as refused:
            pool.start(wait_for_stop)
        assert refused.value.status == 429
        assert refused.value.headers["Retry-After"] == "1"
        for task in open_:
            task.close()
            assert await asyncio.to_thread(task.stopping.ended.wait, 10)
        assert await _soon(lambda: pool.start(lambda _: 7)).result(stays()) == 7

    in_loop(test, at_once=1, most_waiting=2)


def test_a_tenant_that_fills_its_places_holds_up_no_other() -> None:
    async def test(pool: TaskPool) -> None:
        open_ = [pool.start(wait_for_stop, tenant="many") for _ in range(3)]
        with pytest.raises(HttpError):
            pool.start(wait_for_stop, tenant="many")
        assert await pool.start(lambda _: 7, tenant="one").result(stays()) == 7
        for task in open_:
            task.close()

    in_loop(test, at_once=1, most_waiting=2)


def test_a_task_waits_for_a_slow_reader_and_ends_with_it() -> None:
    told = 0

    def tell(task: Task[int]) -> int:
        nonlocal told
        for at in range(1_000):
            task.tell(at)
            told += 1
        return told

    async def test(pool: TaskPool) -> None:
        task = pool.start(tell)
        await asyncio.sleep(0.3)
        assert told <= MOST_TOLD
        found = []
        while parts := await task.some():
            found += parts
        assert (found, task.value) == (list(range(1_000)), 1_000)
        left = pool.start(tell)
        left.close()
        assert await asyncio.to_thread(left.stopping.ended.wait, 10)

    in_loop(test)


def test_a_result_that_is_read_slowly_is_not_cut() -> None:
    def tell(task: Task[int]) -> int:
        for at in range(3):
            task.tell(at)
            time.sleep(0.1)
        return 3

    async def test(pool: TaskPool) -> None:
        task = pool.start(tell, seconds=0.15)
        found = await task.some()
        task.is_delivered = True
        while parts := await task.some():
            found += parts
        assert (found, task.value) == ([0, 1, 2], 3)

    in_loop(test)


def test_no_more_tasks_run_at_once_than_may() -> None:
    running, most, lock = 0, 0, threading.Lock()

    async def test(pool: TaskPool) -> None:
        def task(task: Task[int]) -> int:
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
            time.sleep(0.02)
            with lock:
                running -= 1
            return 0

        await asyncio.gather(*(pool.start(task).result(stays()) for _ in range(10)))

    in_loop(test, at_once=3, most_waiting=10)
    assert most == 3


def _soon(make: Callable[[], Task[int]]) -> Task[int]:
    """A task is counted until just after it has ended."""
    for _ in range(200):
        try:
            return make()
        except HttpError:
            time.sleep(0.01)
    return make()
