"""Frames run in another thread while an event loop goes on."""

from __future__ import annotations

import asyncio
import threading

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


def test_frames_of_one_connection_take_turns(con: Connection) -> None:
    frames = [frame(ROWS, con).sem_map(f"Say {at} {{x}}") for at in range(5)]

    async def main() -> list[object]:
        return await asyncio.gather(*frames)

    assert asyncio.run(main()) == [lazy.collect() for lazy in frames]


def test_a_cancelled_frame_ends_and_leaves_the_connection_usable() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(query: str, fields: object) -> object:
        begun.set()
        go_on.wait(10)
        return answer(query, fields)  # type: ignore[arg-type]

    backend = FakeBackend(slow)  # type: ignore[arg-type]
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
