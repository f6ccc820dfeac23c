"""Lines of a batch are asked of routes, also where these refuse them; without an engine."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from relquery.engine.requests.declared import NOTHING, Declared
from relquery.prompt import Sampling, Span
from relquery.serve.auth import Identity
from relquery.serve.batches import batches, lines, store
from relquery.serve.batches.batches import BatchRecord
from relquery.serve.batches.lines import AnsweredLine, Results
from relquery.serve.openai.choices import choices_of
from relquery.serve.server import RequestScope, Server

GOOD, BAD = (
    AnsweredLine("a", 200, {"x": 1}, "req_1"),
    AnsweredLine("b", 400, {"error": {}}, "req_2"),
)


class Routes:
    """A server whose routes answer with statuses. status: by what is asked, and how often something
    was asked before."""

    admission, models = SimpleNamespace(stopping=False), ("demo",)

    def __init__(self, status: Callable[[str, int], int]) -> None:
        self.asked: list[str] = []
        self.usual: list[Declared | None] = []
        self._status = status

    async def call(
        self, scope: RequestScope, method: str, path: str, body: bytes, request: str
    ) -> tuple[int, bytes]:
        text = json.loads(body)["prompt"]
        self.usual.append(scope._usual)
        self.asked.append(text)
        return self._status(text, len(self.asked)), b'{"text": "yes"}'


def run(tmp_path: Path, routes: Routes, count: int, **more: Any) -> Results:
    record = BatchRecord("", "/v1/completions", "", "output", "errors")
    files: Any = SimpleNamespace(path=tmp_path.joinpath)
    scope = RequestScope(cast(Server, routes), Identity(), usual=NOTHING)

    async def ask() -> Results:
        running = batches._Run(scope.server, record, files, cast(Any, None))
        for at in range(count):
            line = {"custom_id": f"{at}", "body": {"prompt": f"{at}", **more}}
            await running.ask(line, scope)
        return running.results

    results = asyncio.run(ask())
    assert (record.completed, record.failed) == (results.succeeded, results.failed)
    return results


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "PAUSE", 0)


@pytest.mark.parametrize(("times", "failed"), [(1, 0), (3, 1), (99, 5)])
def test_what_an_engine_has_not_answered_when_it_ends_is_asked_again(
    tmp_path: Path, times: int, failed: int
) -> None:
    """One that ends again and again is an error."""
    routes = Routes(lambda _, asked: 503 if asked <= times else 200)
    results = run(tmp_path, routes, 5)
    assert routes.asked[:2] == ["0", "0"]
    assert (results.succeeded, results.failed) == (5 - failed, failed)
    assert set(routes.usual) == {NOTHING}


def test_a_line_that_is_refused_spares_the_others(tmp_path: Path) -> None:
    results = run(tmp_path, Routes(lambda text, _: 400 if text == "2" else 200), 4)
    assert results.recover() == {"0", "1", "2", "3"}
    assert (results.succeeded, results.failed) == (3, 1)


def test_a_line_that_would_be_streamed_is_not_asked(tmp_path: Path) -> None:
    routes = Routes(lambda *_: 200)
    assert run(tmp_path, routes, 1, stream=True).failed == 1
    assert routes.asked == []
    assert '"param": "stream"' in (tmp_path / "errors").read_text()


def test_a_full_queue_is_waited_for(tmp_path: Path) -> None:
    routes = Routes(lambda _, asked: 429 if asked < 4 else 200)
    assert run(tmp_path, routes, 1).succeeded == 1
    assert len(routes.asked) == 4


def test_answers_are_kept_until_the_disk_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of what did not fit is left, in neither of the two files."""
    monkeypatch.setattr(store, "ROOM_PAUSE", 0)
    appended, sizes = lines._append, list[int]()

    def append(path: Path, some: list[bytes]) -> int:
        if path.name == "errors" and some and len(sizes) < 3:
            sizes.append((tmp_path / "output").stat().st_size)
            raise OSError(errno.ENOSPC, "No space left on device")
        return appended(path, some)

    monkeypatch.setattr(lines, "_append", append)
    results = Results(tmp_path / "output", tmp_path / "errors")
    asyncio.run(store.once_there_is_room(results.add, [GOOD, BAD]))
    assert len(set(sizes)) == 1
    assert len(sizes) == 3
    assert results.recover() == {"a", "b"}
    assert len((tmp_path / "output").read_text().splitlines()) == 1


def test_choices_with_samplings_of_their_own_have_their_places() -> None:
    prompts = [(Span("a"),), (Span("b"),)]
    groups, places = choices_of(prompts, [Sampling(), Sampling(temperature=1.0)], 2)
    assert [len(each.prompts) for each in groups] == [2, 2]
    answers = dict(zip(places, ["a greedy", "b greedy", "a warm", "b warm"], strict=True))
    in_order = [answers[place] for place in range(4)]
    assert in_order == ["a greedy", "a warm", "b greedy", "b warm"]
