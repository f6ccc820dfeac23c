"""Frames run in another thread while an event loop goes on."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from relquery.connection import Connection, connect
from relquery.frames.frame import frame
from tests.frames.model import answer
from tests.sql.fakes import FakeBackend

ROWS = [{"x": f"text {at}"} for at in range(6)]


def test_every_form_that_runs_has_an_async_one(con: Connection) -> None:
    lazy = frame(ROWS, con).sem_map("Say {x}").limit(2)

    async def main() -> list[object]:
        return [
            await lazy,
            await lazy.acollect(),
            (await lazy.aresult()).fetchall(),
            (await lazy.aarrow()).to_pylist(),
            (await lazy.apl()).to_dicts(),
            (await lazy.adf()).to_dict("records"),
            str(await lazy.aexplain()),
        ]

    rows = lazy.collect()
    tuples = [tuple(row.values()) for row in rows]
    explained = str(lazy.explain())
    assert asyncio.run(main()) == [rows, rows, tuples, rows, rows, rows, explained]


def held_backend() -> tuple[FakeBackend, threading.Event, threading.Event]:
    """A backend; an event set once it is asked; one for which its answers wait."""
    begun, go_on = threading.Event(), threading.Event()

    def slow(query: str, fields: object) -> object:
        begun.set()
        go_on.wait(10)
        return answer(query, fields)  # type: ignore[arg-type]

    return FakeBackend(slow), begun, go_on  # type: ignore[arg-type]


def test_frames_of_one_connection_take_turns(con: Connection) -> None:
    frames = [frame(ROWS, con).sem_map(f"Say {at} {{x}}") for at in range(5)]

    async def main() -> list[object]:
        return await asyncio.gather(*frames)

    assert asyncio.run(main()) == [lazy.collect() for lazy in frames]


def test_a_cancelled_frame_ends_and_leaves_the_connection_usable() -> None:
    backend, begun, go_on = held_backend()
    with connect(backend) as con:

        async def main() -> None:
            task = asyncio.ensure_future(frame(ROWS, con).sem_map("Say {x}").acollect())
            await asyncio.to_thread(begun.wait, 10)
            task.cancel()
            await asyncio.sleep(0.01)
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main())
        assert len(backend.asked) < len(ROWS)
        assert len(frame(ROWS, con).sem_map("Say {x}").collect()) == len(ROWS)


def test_a_frame_that_waits_is_cancelled_at_once_and_the_others_keep_their_order() -> None:
    backend, begun, go_on = held_backend()
    with connect(backend) as con:

        async def main() -> float:
            asked = [frame(ROWS, con).sem_map(f"{name} {{x}}") for name in "ABCD"]
            running = asyncio.ensure_future(asked[0].acollect())
            await asyncio.to_thread(begun.wait, 10)
            waiting, *others = (asyncio.ensure_future(lazy.acollect()) for lazy in asked[1:])
            start = time.perf_counter()
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(waiting, timeout=0.05)
            waited = time.perf_counter() - start
            go_on.set()
            await asyncio.gather(running, *others)
            return waited

        assert asyncio.run(main()) < 1  # the running one waits until it may go on
        assert list(dict.fromkeys(query[0] for query in backend.queries)) == ["A", "C", "D"]
        assert len(frame(ROWS, con).sem_map("Say {x}").collect()) == len(ROWS)


def test_frames_run_though_all_threads_of_the_loop_wait_for_one(con: Connection) -> None:
    turn = con.lent.turn
    frames = [frame(ROWS, con).sem_map(f"Say {at} {{x}}") for at in range(3)]

    async def main() -> list[object]:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        tasks = [asyncio.ensure_future(lazy.acollect()) for lazy in frames]
        await asyncio.sleep(0)  # they ask for their turns

        def take() -> None:
            with turn.taken():
                pass

        await asyncio.wait_for(asyncio.gather(*(asyncio.to_thread(take) for _ in range(2))), 10)
        return [await task for task in tasks]

    assert asyncio.run(main()) == [lazy.collect() for lazy in frames]
