"""Work on the disk goes on to its end, whoever is cancelled."""

from __future__ import annotations

import asyncio
from threading import Event

import pytest

from relquery.serve.wire.openai.batches.writing import to_its_end


def test_the_value_and_the_error_of_a_function_come_back() -> None:
    async def value() -> int:
        return await to_its_end(int, "12")

    async def error() -> int:
        return await to_its_end(int, "x")

    assert asyncio.run(value()) == 12
    with pytest.raises(ValueError, match="invalid literal"):
        asyncio.run(error())


@pytest.mark.parametrize("times", [1, 2])
def test_who_is_cancelled_waits_until_the_thread_has_ended(times: int) -> None:
    go, ended = Event(), Event()

    def write() -> None:
        go.wait()
        ended.set()

    async def run() -> None:
        task = asyncio.create_task(to_its_end(write))
        for _ in range(times):
            await asyncio.sleep(0.01)
            task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()

    asyncio.run(run())
