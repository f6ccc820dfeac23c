"""Lines of a batch become relQueries, also under an engine that breaks; without an engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from relquery.engine.requests.declared import NOTHING, Declared
from relquery.errors import ConfigError, EngineEndedError
from relquery.prompt import Answer, Finish, Sampling, Span
from relquery.serve.access.gate import Asker
from relquery.serve.errors import HttpError
from relquery.serve.flow import Flow
from relquery.serve.server import Asked
from relquery.serve.wire.openai.batches import running
from relquery.serve.wire.openai.batches.lines import Line
from relquery.serve.wire.openai.batches.results import Results
from relquery.serve.wire.openai.batches.running import grouped
from relquery.serve.wire.openai.choices import Question, choices_of

Broken = Callable[[list[Any]], BaseException | None]
BAD = Sampling(schema="{}")


class Form:
    async def whole(self, answers: list[Answer]) -> dict[str, Any]:
        return {"text": answers[0].text}


class Breaking:
    """A server that breaks if it is told to. If its engine ends, one prompt is answered before."""

    stopping = False
    config = SimpleNamespace(max_waiting=100)

    def __init__(self, broken: Broken) -> None:
        self.asked: list[list[Any]] = []
        self._broken = broken

    def start(self, groups: list[Any], asker: Asker, declared: Declared) -> Flow:
        texts = [prompt[0].content for each in groups for prompt in each.prompts]
        self.asked.append(texts)
        error = self._broken(groups)
        if isinstance(error, HttpError):
            raise error
        flow = Flow(len(texts), lambda _: None)
        flow.shares = [SimpleNamespace()]
        answered = texts if error is None else texts[: isinstance(error, EngineEndedError)]
        for at, text in enumerate(answered):
            flow.add(at, Answer(text, Finish.STOP))
        flow.end(None, error)
        return flow


def run(tmp_path: Path, server: Any, samplings: list[Sampling]) -> Results:
    results = Results(tmp_path / "output", tmp_path / "errors")
    lines = [
        Line(f"{at}", Question([Asked([(Span(f"{at}"),)], sampling)], [0], Form()))  # type: ignore[arg-type]
        for at, sampling in enumerate(samplings)
    ]
    asyncio.run(running.Portion(lines, server, Asker(), NOTHING, results, lambda: None).run())
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


def test_a_full_queue_is_waited_for(tmp_path: Path) -> None:
    server = Breaking(lambda _: HttpError(429, "full") if len(server.asked) < 4 else None)
    assert run(tmp_path, server, [Sampling()]).succeeded == 1
    assert len(server.asked) == 4


GREEDY, WARM = Sampling(), Sampling(temperature=1.0)
FORM: Any = None


def asked(text: str, *samplings: Sampling, n: int = 1) -> Question:
    return Question(*choices_of([(Span(text),)], samplings, n), FORM)


def test_lines_with_equal_sampling_are_asked_together_in_their_order() -> None:
    lines = [asked("a", GREEDY), asked("b", WARM, n=2), asked("c", GREEDY), asked("d", WARM)]
    groups, places = grouped(lines)
    found = [([prompt[0].content for prompt in each.prompts], each.sampling) for each in groups]
    assert found == [(["a", "c"], GREEDY), (["b", "b", "d"], WARM)]
    assert places == [(0, 0), (2, 0), (1, 0), (1, 1), (3, 0)]


def test_choices_with_samplings_of_their_own_are_put_back_in_order() -> None:
    prompts = [(Span("a"),), (Span("b"),)]
    groups, places = choices_of(prompts, [GREEDY, WARM], 2)
    assert [len(each.prompts) for each in groups] == [2, 2]
    answers: Any = ["a greedy", "b greedy", "a warm", "b warm"]
    in_order: Any = Question(groups, places, FORM).in_order(answers)
    assert list(in_order) == ["a greedy", "a warm", "b greedy", "b warm"]
