"""What a server counts as open goes when its reader leaves, and when its job breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from relquery.prompt import Answer, Finish
from relquery.serve.server import CountedSink
from relquery.serve.streaming import ClientGoneError, EventResponse, JobAnswers, failed_line


def test_a_reader_that_leaves_in_the_midst_cancels_what_is_open_once() -> None:
    for answered, dropped in ((0, 1), (1, 1), (2, 0)):
        told: list[str] = []
        stream = JobAnswers(2, 2, lambda: told.append("left"))  # noqa: B023
        for at in range(answered):
            stream.add(at, Answer("a", Finish.STOP))
            stream.end(None)
        stream.close()
        stream.close()
        assert told == ["left"] * dropped
        if dropped:
            with pytest.raises(ClientGoneError):
                asyncio.run(stream.some())


def test_prompts_of_a_job_that_breaks_are_no_longer_open() -> None:
    admission = SimpleNamespace(open=3)
    scope: Any = SimpleNamespace(
        server=SimpleNamespace(admission=admission),
        answered=lambda *_: None,
        ended=lambda *_: None,
    )
    stream = JobAnswers(3, 1, lambda: None)
    sink = CountedSink(scope, stream, 3)
    sink.add(0, Answer("a", Finish.STOP))
    assert admission.open == 2
    sink.end(None, RuntimeError("broken"))
    assert admission.open == 0
    assert len(asyncio.run(stream.some())) == 1
    with pytest.raises(RuntimeError, match="broken"):
        asyncio.run(stream.some())


def test_what_breaks_in_the_midst_is_told_or_leaves_the_answer_without_an_end() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"first"
        raise RuntimeError("broken")

    async def respond(failed: Any) -> list[Any]:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            await asyncio.sleep(10)

        response = EventResponse(chunks(), JobAnswers(1, 1, lambda: None), failed)
        try:
            await response({"type": "http"}, receive, send)
        except RuntimeError as error:
            sent.append(error)
        return sent

    told = asyncio.run(respond(failed_line))
    assert (told[-1]["more_body"], b"error" in told[-1]["body"]) == (False, True)
    head, first, error = asyncio.run(respond(None))
    assert (head["status"], first["more_body"], str(error)) == (200, True, "broken")
