"""A server whose SQL routes follow a script, so that the page can be tested.

A query with the word `slow` makes progress and never ends, `broken` fails in the midst of it,
`wrong` is refused; every other query gives the same 2,000 rows.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from fastapi import APIRouter, Request
from starlette.datastructures import Headers
from starlette.responses import Response, StreamingResponse

from relquery.serve import app, serving
from relquery.serve.auth import Authenticator, Identity
from relquery.serve.bodies import Body
from relquery.serve.errors import HttpError
from tests.serve.conftest import Running, inside

ROWS = 2_000
KEY = "sesame"
NASTY = '<img src=x onerror="document.title=1">'
"""A value that must be shown as text."""

DATA = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))

router = APIRouter()


class Query(Body):
    query: str
    stream: bool = False
    record: bool | int = False
    order: str | None = None


class LockedGate(Authenticator):
    """Lets in who has the key, once it is locked. left: clients that left a slow query."""

    locked = False
    left = 0

    def identify(self, headers: Headers) -> Identity:
        given = headers.get("authorization")
        if self.locked and given != f"Bearer {KEY}":
            raise HttpError(401, "No valid key. Send one as Authorization.", "invalid_key")
        return Identity("tenant-a" if self.locked else "")


@router.post("/stand-in/lock/{word}")
async def lock(word: str, request: Request) -> None:
    request.state.server.gate.locked = word == "on"


@router.get("/stand-in/left")
async def left(request: Request) -> int:
    count: int = request.state.server.gate.left
    return count


@router.get("/v1/tables")
async def tables() -> Any:
    return DATA["tables"]


@router.post("/v1/sql/explain")
async def explain(body: Query) -> Any:
    _check(body)
    if "plain" in body.query:
        return {"text": "SEQ_SCAN movies", "stages": [{"explain_key": "physical_plan"}]}
    first, second = DATA["plan"]["stages"]
    first = first | {"hit_rate": 0.31 if body.order == "original" else 0.72}
    return DATA["plan"] | {"stages": [first, second]}


@router.post("/v1/sql")
async def sql(body: Query, request: Request) -> Response:
    _check(body)
    lines = _slow(request) if "slow" in body.query else _lines(body)
    return StreamingResponse(lines, media_type="application/x-ndjson")


def _check(body: Query) -> None:
    if "wrong" in body.query:
        raise HttpError(400, "Column 'titel' is not in table movies.\n  SELECT titel\n         ^")


async def _slow(request: Request) -> AsyncIterator[str]:
    answered = 0
    try:
        while True:
            yield _line("progress", stage="filter 1", answered=answered, total=400)
            yield _line("progress", stage="select 2", answered=answered // 3, total=None)
            answered = min(answered + 3, 390)
            await asyncio.sleep(0.05)
    finally:
        request.state.server.gate.left += 1


async def _lines(body: Query) -> AsyncIterator[str]:
    for answered in (0, 100, 200):
        yield _line("progress", stage="filter 1", answered=answered, total=200)
        await asyncio.sleep(0.01)
    if "broken" in body.query:
        yield _line("error", error={"message": "The engine's process ended. Ask again."})
        return
    yield _line("columns", columns=DATA["columns"])
    for start in range(0, ROWS, 500):
        yield _line("rows", rows=[_row(number) for number in range(start, start + 500)])
    yield _line("report", report=DATA["report"])
    if body.record:
        stage = {"stage": "filter 1", "sent": 1480, "prompts": _prompts()}
        yield _line("recording", recording=[stage])
    yield _line("errors", errors=[DATA["missing"]])


def _row(number: int) -> list[Any]:
    slow = 'A slow start, then, as she said, "a marvel" of a film.\n' * 2
    review = slow if number else NASTY
    mood = None if number % 7 == 3 else ("positive", "negative")[number % 2]
    return [f"The Winter Castle, part {number:,}", 1950 + number % 70, number / ROWS, mood, review]


def _prompts() -> list[dict[str, Any]]:
    names = ("text", "answer", "error", "reused_characters", "reused", "computed", "decoded")
    rows = (
        (
            *(f"You are a data analyst. Is the review positive? number {at}", "Yes", None),
            *((23, 40 + 7 * (at % 6)) if at else (0, 0)),
            90 + (at * 37) % 50 if at % 6 == 0 else 20 + (at * 13) % 40,
            1 + at % 12,
        )
        for at in range(90)
    )
    return [dict(zip(names, row, strict=True)) for row in rows]


def _line(kind: str, **fields: Any) -> str:
    return json.dumps({"type": kind, **fields}) + "\n"


@contextmanager
def started() -> Iterator[Running]:
    """The server, in this process. Its own routes are asked after those of the stand-in."""
    with ExitStack() as patched:
        patched.enter_context(patch.object(app, "ROUTERS", (router, *app.ROUTERS)))
        patched.enter_context(patch.object(serving, "Authenticator", LockedGate))
        # Nothing on the page says what a model answers.
        with inside("simulated:step=0.02,length=200", names=("demo",)) as found:
            patched.close()
            yield found
