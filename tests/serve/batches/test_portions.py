"""Lines of a batch become relQueries, also under an engine that breaks; without an engine."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from relquery.engine.requests.declared import NOTHING, Declared
from relquery.errors import ConfigError, EngineEndedError
from relquery.prompt import Answer, Finish, Sampling, Span
from relquery.serve import store
from relquery.serve.batches import running
from relquery.serve.batches.lines import Line
from relquery.serve.batches.running import Results, grouped
from relquery.serve.errors import HttpError
from relquery.serve.openai.choices import choices_of
from relquery.serve.server import Asked, NamedModel, Question
from relquery.serve.streaming import AnswerStream

Broken = Callable[[list[Any]], BaseException | None]
BAD = Sampling(schema="{}")


class Form:
    async def whole(self, answers: list[Answer]) -> dict[str, Any]:
        return {"text": answers[0].text}


FORM: Any = Form()
ENGINE: Any = object()
MODEL = NamedModel("demo", ENGINE)


class Breaking:
    """A RequestScope whose server breaks if it is told to.

    If its engine ends, one prompt is answered before.
    """

    admission = SimpleNamespace(stopping=False)
    config = SimpleNamespace(max_waiting=100)

    def __init__(self, broken: Broken) -> None:
        self.asked: list[list[Any]] = []
        self.server, self._broken = self, broken
        self.declared: list[Declared] = []

    def start(self, groups: list[Any], declared: Declared) -> AnswerStream:
        self.declared.append(declared)
        texts = [prompt[0].content for each in groups for prompt in each.prompts]
        self.asked.append(texts)
        error = self._broken(groups)
        if isinstance(error, HttpError):
            raise error
        stream = AnswerStream(len(texts), 1, lambda: None)
        answered = texts if error is None else texts[: isinstance(error, EngineEndedError)]
        for at, text in enumerate(answered):
            stream.add(at, Answer(text, Finish.STOP))
        stream.end(None, error)
        return stream


def run(tmp_path: Path, server: Any, samplings: list[Sampling]) -> Results:
    results = Results(tmp_path / "output", tmp_path / "errors")
    lines = [
        Line(f"{at}", Question([Asked([(Span(f"{at}"),)], sampling, MODEL)], FORM))
        for at, sampling in enumerate(samplings)
    ]
    asyncio.run(running.Portion(lines, server, NOTHING, results, lambda: None).run())
    return results


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "PAUSE", 0)


@pytest.mark.parametrize(("times", "failed"), [(1, 0), (99, 2)])
def test_what_an_engine_has_not_answered_when_it_ends_is_asked_again(
    tmp_path: Path, times: int, failed: int
) -> None:
    """One that ends again and again is an error."""
    server = Breaking(lambda _: EngineEndedError("gone") if len(server.asked) <= times else None)
    results = run(tmp_path, server, [Sampling()] * 5)
    assert server.asked[:2] == [["0", "1", "2", "3", "4"], ["1", "2", "3", "4"]]
    assert (results.succeeded, results.failed) == (5 - failed, failed)


def test_a_sampling_that_breaks_spares_the_lines_with_others(tmp_path: Path) -> None:
    def broken(groups: list[Any]) -> BaseException | None:
        return ConfigError("no") if any(each.sampling == BAD for each in groups) else None

    results = run(tmp_path, Breaking(broken), [Sampling(), Sampling(), BAD, Sampling(top_k=1)])
    assert results.recover() == {"0", "1", "2", "3"}
    assert (results.succeeded, results.failed) == (3, 1)


def test_lines_are_asked_as_the_relquery_that_they_say(tmp_path: Path) -> None:
    server: Any = Breaking(lambda _: None)
    results = Results(tmp_path / "output", tmp_path / "errors")
    theirs = Declared("theirs", 2)
    lines = [
        Line(f"{at}", asked(f"{at}", GREEDY), theirs if at in (1, 3) else None) for at in range(4)
    ]
    asyncio.run(running.Portion(lines, server, NOTHING, results, lambda: None).run())
    assert list(zip(server.declared, server.asked, strict=True)) == [
        (NOTHING, ["0", "2"]),
        (theirs, ["1", "3"]),
    ]
    assert results.succeeded == 4


def test_answers_are_kept_until_the_disk_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of what did not fit is left, in neither of the two files."""
    monkeypatch.setattr(store, "ROOM_PAUSE", 0)
    appended, sizes = running._append, list[int]()

    def append(path: Path, lines: list[bytes]) -> int:
        if path.name == "errors" and lines and len(sizes) < 3:
            sizes.append((tmp_path / "output").stat().st_size)
            raise OSError(errno.ENOSPC, "No space left on device")
        return appended(path, lines)

    monkeypatch.setattr(running, "_append", append)
    results = Results(tmp_path / "output", tmp_path / "errors")
    found: Any = [("a", {"x": 1}), ("b", HttpError(400, "Wrong."))]
    asyncio.run(store.once_there_is_room(results.add, found))
    assert len(set(sizes)) == 1
    assert len(sizes) == 3
    assert results.recover() == {"a", "b"}
    assert len((tmp_path / "output").read_text().splitlines()) == 1


def test_a_full_queue_is_waited_for(tmp_path: Path) -> None:
    server = Breaking(lambda _: HttpError(429, "full") if len(server.asked) < 4 else None)
    assert run(tmp_path, server, [Sampling()]).succeeded == 1
    assert len(server.asked) == 4


GREEDY, WARM = Sampling(), Sampling(temperature=1.0)


def asked(text: str, *samplings: Sampling, n: int = 1) -> Question:
    groups, places = choices_of([(Span(text),)], samplings, n, MODEL)
    return Question(groups, FORM, places)


def test_lines_with_equal_sampling_are_asked_together_in_their_order() -> None:
    one, two = (GREEDY,), (WARM,)
    lines = {"0": asked("a", *one), "1": asked("b", *two, n=2)}
    lines |= {"2": asked("c", *one), "3": asked("d", *two)}
    groups, places = grouped(lines)
    found = [([prompt[0].content for prompt in each.prompts], each.sampling) for each in groups]
    assert found == [(["a", "c"], GREEDY), (["b", "b", "d"], WARM)]
    assert places == [("0", 0), ("2", 0), ("1", 0), ("1", 1), ("3", 0)]


def test_choices_with_samplings_of_their_own_are_put_back_in_order() -> None:
    prompts = [(Span("a"),), (Span("b"),)]
    groups, places = choices_of(prompts, [GREEDY, WARM], 2, MODEL)
    assert [len(each.prompts) for each in groups] == [2, 2]
    answers: Any = ["a greedy", "b greedy", "a warm", "b warm"]
    in_order: Any = Question(groups, FORM, places).in_order(answers)
    assert list(in_order) == ["a greedy", "a warm", "b greedy", "b warm"]
