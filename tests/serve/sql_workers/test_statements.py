"""Jobs run in workers, so many at once of each tenant, and end with who asked for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from multiprocessing import Pipe
from types import SimpleNamespace
from typing import Any, cast

import pytest

from relquery.backends.local.host import Facts
from relquery.backends.remote.process import Replied, Told, receive, send
from relquery.errors import CancelledError, ConfigError
from relquery.serve.errors import HttpError
from relquery.serve.server import RequestScope
from relquery.serve.settings import ServeConfig
from relquery.serve.sql_workers import statements
from relquery.serve.sql_workers.statements import MOST_TOLD, Statements, WorkerTask
from relquery.serve.streaming import ClientGoneError

FACTS = Facts("demo", 10, 10, 1, "shortest")
ENDLESS = {"seconds": 60.0}


class StandIn:
    """A pool whose workers do what their jobs say: tell some parts, wait, and give a value."""

    memory = "2GB"

    def __init__(self) -> None:
        self.running = self.most = self.ended = 0

    def take(self, *, reserved: bool) -> Any:
        ours, theirs = Pipe()
        killed = threading.Event()
        threading.Thread(target=self._work, args=(theirs, killed), daemon=True).start()
        self.running += 1
        self.most = max(self.most, self.running)
        return SimpleNamespace(pipe=ours, kill=killed.set, leave=self._leave)

    @staticmethod
    def _work(pipe: Any, killed: threading.Event) -> None:
        with pipe:
            (work,) = receive(pipe)
            job: dict[str, Any] = work.job
            for at in range(job.get("tells", 0)):
                send(pipe, [Told(0, "tell", (at,))])
                if killed.wait(job.get("pause", 0.0)):
                    return
            if not killed.wait(job.get("seconds", 0.0)):
                send(pipe, [Replied(0, job.get("gives"), job.get("raises"))])

    def refill(self) -> None:
        pass

    def _leave(self) -> None:
        self.running -= 1
        self.ended += 1

    def close(self) -> None:
        pass


class Asked:
    """A request whose client leaves when it is told to."""

    def __init__(self, tenant: str = "") -> None:
        self.tenant, self.model, self.gone = tenant, "", asyncio.Event()
        admission = SimpleNamespace(check_open=lambda: None, check_room=lambda: None)
        self.server = SimpleNamespace(admission=admission, names_of=lambda model: ("demo",))

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}


Start = Callable[..., WorkerTask]
Test = Callable[[Start, StandIn], Coroutine[Any, Any, None]]


def in_loop(test: Test, at_once: int = 8, seconds: float = 20.0) -> StandIn:
    pool, config = StandIn(), ServeConfig("demo", sql_seconds=seconds)
    model: Any = SimpleNamespace(
        name="demo", adapter="", facts=FACTS, engine=SimpleNamespace(link=SimpleNamespace(hop=None))
    )
    running = Statements(cast(Any, pool), config, lambda tenant: at_once)

    def start(scope: Any = None, **job: Any) -> WorkerTask:
        return running.start(cast(RequestScope, scope or Asked()), cast(Any, job), model)

    try:
        asyncio.run(asyncio.wait_for(test(start, pool), 20))
    finally:
        running.close()
    return pool


async def result(task: WorkerTask, scope: Any = None) -> Any:
    return await task.result(cast(RequestScope, scope or Asked()))


async def until_ended(pool: StandIn, count: int) -> None:
    while pool.ended < count:
        await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def few_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "MOST_WAITING", 2)


def test_a_job_gives_what_it_tells_and_then_its_value_or_what_it_raises() -> None:
    async def test(start: Start, pool: StandIn) -> None:
        task = start(tells=2, gives=3)
        told = []
        while parts := await task.some():
            told += parts
        assert (told, task.value) == ([0, 1], 3)
        with pytest.raises(ConfigError, match="wrong"):
            await result(start(raises=ConfigError("wrong")))
        with pytest.raises(CancelledError, match=r"longer than 0\.2 seconds"):
            await result(start(**ENDLESS))
        await until_ended(pool, 3)

    in_loop(test, seconds=0.2)


def test_a_client_that_leaves_ends_its_job_and_a_worker_that_ends_is_told_of() -> None:
    async def test(start: Start, pool: StandIn) -> None:
        asked = Asked()
        asyncio.get_running_loop().call_later(0.05, asked.gone.set)
        with pytest.raises(ClientGoneError):
            await result(start(asked, **ENDLESS), asked)
        await until_ended(pool, 1)
        task = start(**ENDLESS)
        await asyncio.sleep(0.05)
        assert task._worker is not None
        task._worker.kill()
        with pytest.raises(HttpError, match="has ended its process"):
            await result(task)

    in_loop(test)


def test_jobs_beyond_those_that_may_wait_are_refused_and_hold_up_no_other_tenant() -> None:
    async def test(start: Start, pool: StandIn) -> None:
        many = Asked("many")
        open_ = [start(many, **ENDLESS) for _ in range(3)]
        with pytest.raises(HttpError) as refused:
            start(many)
        assert (refused.value.status, refused.value.headers["Retry-After"]) == (429, "1")
        assert await result(start(Asked("one"), gives=7)) == 7
        for task in open_:
            task.close()
        await until_ended(pool, 2)
        while True:  # those that were closed before they began leave as their turn comes
            try:
                assert await result(start(many, gives=7)) == 7
                break
            except HttpError:
                await asyncio.sleep(0.01)

    in_loop(test, at_once=1)


def test_a_job_waits_for_a_slow_reader_and_ends_with_it() -> None:
    async def test(start: Start, pool: StandIn) -> None:
        task = start(tells=200, gives=200)
        await asyncio.sleep(0.3)
        assert len(task._parts) <= MOST_TOLD
        found = []
        while parts := await task.some():
            found += parts
        assert (found, task.value) == (list(range(200)), 200)
        left = start(tells=200)
        await asyncio.sleep(0.1)
        left.close()
        await until_ended(pool, 2)

    in_loop(test)


def test_a_result_that_is_read_slowly_is_not_cut() -> None:
    async def test(start: Start, pool: StandIn) -> None:
        task = start(tells=3, pause=0.1, gives=3)
        found = await task.some()
        task.is_delivered = True
        while parts := await task.some():
            found += parts
        assert (found, task.value) == ([0, 1, 2], 3)

    in_loop(test, seconds=0.15)


def test_no_more_jobs_run_at_once_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "MOST_WAITING", 10)

    async def test(start: Start, pool: StandIn) -> None:
        await asyncio.gather(*(result(start(seconds=0.02)) for _ in range(10)))

    assert in_loop(test, at_once=3).most == 3
