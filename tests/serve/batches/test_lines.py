"""Lines of a batch become relQueries, also under an engine that breaks; without an engine."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from relquery.engine.requests.declared import NOTHING, Declared
from relquery.errors import ConfigError, EngineEndedError
from relquery.prompt import Answer, Finish, Sampling, Span
from relquery.serve.auth import Identity
from relquery.serve.batches import batches, lines, store
from relquery.serve.batches.batches import Record
from relquery.serve.batches.lines import Line, Results
from relquery.serve.errors import HttpError
from relquery.serve.openai.choices import choices_of
from relquery.serve.server import NamedModel, PromptGroup, Question, Server
from relquery.serve.streaming import AnswerStream

Broken = Callable[[list[Any], int], BaseException | None]
BAD = Sampling(schema="{}")


class Form:
    async def whole(self, answers: list[Answer]) -> dict[str, Any]:
        return {"text": answers[0].text}


FORM: Any = Form()
ENGINE: Any = object()
MODEL = NamedModel("demo", ENGINE)


class Breaking:
    """A RequestScope whose server breaks if it is told to. broken: by what is asked, and how often
    something was asked before."""

    admission = SimpleNamespace(stopping=False)

    def __init__(self, broken: Broken) -> None:
        self.asked: list[str] = []
        self.declared: list[Declared] = []
        self._broken = broken

    def start(self, model: object, groups: list[Any], declared: Declared) -> AnswerStream:
        texts = [str(prompt[0].content) for each in groups for prompt in each.prompts]
        self.declared.append(declared)
        self.asked += texts
        error = self._broken(groups, len(self.asked))
        if isinstance(error, HttpError):
            raise error
        stream = AnswerStream(len(texts), 1, lambda: None)
        for at, text in enumerate(texts if error is None else ()):
            stream.add(at, Answer(text, Finish.STOP))
        stream.end(None, error)
        return stream


def run(
    tmp_path: Path, scope: Breaking, samplings: list[Sampling], *theirs: Declared | None
) -> Results:
    results = Results(tmp_path / "output", tmp_path / "errors")
    record = Record("", "/v1/completions", "", "", "")
    asking = batches._Asking(cast(Server, scope), record, results, NOTHING)

    async def ask() -> None:
        for at, sampling in enumerate(samplings):
            question = Question(MODEL, [PromptGroup([(Span(f"{at}"),)], sampling)], FORM)
            declared = theirs[at] if theirs else None
            await asking.ask(Line(f"{at}", question, declared), Identity())

    asyncio.run(ask())
    assert (record.completed, record.failed) == (results.succeeded, results.failed)
    return results


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "PAUSE", 0)
    monkeypatch.setattr(batches, "RequestScope", lambda server, identity: server)


@pytest.mark.parametrize(("times", "failed"), [(1, 0), (3, 1), (99, 5)])
def test_what_an_engine_has_not_answered_when_it_ends_is_asked_again(
    tmp_path: Path, times: int, failed: int
) -> None:
    """One that ends again and again is an error."""
    scope = Breaking(lambda _, asked: EngineEndedError("gone") if asked <= times else None)
    results = run(tmp_path, scope, [Sampling()] * 5)
    assert scope.asked[:2] == ["0", "0"]
    assert (results.succeeded, results.failed) == (5 - failed, failed)


def test_a_sampling_that_breaks_spares_the_lines_with_others(tmp_path: Path) -> None:
    def broken(groups: list[Any], asked: int) -> BaseException | None:
        return ConfigError("no") if any(each.sampling == BAD for each in groups) else None

    results = run(tmp_path, Breaking(broken), [Sampling(), Sampling(), BAD, Sampling(top_k=1)])
    assert results.recover() == {"0", "1", "2", "3"}
    assert (results.succeeded, results.failed) == (3, 1)


def test_lines_are_asked_as_the_relquery_that_they_say(tmp_path: Path) -> None:
    scope, theirs = Breaking(lambda *_: None), Declared("theirs", 2)
    results = run(tmp_path, scope, [GREEDY] * 4, None, theirs, None, theirs)
    assert scope.declared == [NOTHING, theirs, NOTHING, theirs]
    assert results.succeeded == 4


def test_a_full_queue_is_waited_for(tmp_path: Path) -> None:
    scope = Breaking(lambda _, asked: HttpError(429, "full") if asked < 4 else None)
    assert run(tmp_path, scope, [Sampling()]).succeeded == 1
    assert len(scope.asked) == 4


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
    found: Any = [("a", {"x": 1}), ("b", HttpError(400, "Wrong."))]
    asyncio.run(store.once_there_is_room(results.add, found))
    assert len(set(sizes)) == 1
    assert len(sizes) == 3
    assert results.recover() == {"a", "b"}
    assert len((tmp_path / "output").read_text().splitlines()) == 1


GREEDY, WARM = Sampling(), Sampling(temperature=1.0)


def test_choices_with_samplings_of_their_own_are_put_back_in_order() -> None:
    prompts = [(Span("a"),), (Span("b"),)]
    groups, places = choices_of(prompts, [GREEDY, WARM], 2)
    assert [len(each.prompts) for each in groups] == [2, 2]
    answers: Any = ["a greedy", "b greedy", "a warm", "b warm"]
    in_order: Any = Question(MODEL, groups, FORM, places).in_order(answers)
    assert list(in_order) == ["a greedy", "a warm", "b greedy", "b warm"]
