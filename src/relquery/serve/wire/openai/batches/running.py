"""One batch on its way: portions of its lines are asked, and answers are written as they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, NamedTuple

from relquery.engine.requests.declared import Declared
from relquery.errors import EngineEndedError
from relquery.prompt import Answer, Prompt, Sampling
from relquery.serve.access.gate import Asker
from relquery.serve.errors import HttpError, as_http
from relquery.serve.flow import Flow
from relquery.serve.server import Asked, Server
from relquery.serve.wire.openai.batches.lines import Line
from relquery.serve.wire.openai.batches.results import Results
from relquery.serve.wire.openai.batches.writing import to_its_end
from relquery.serve.wire.openai.choices import Question

PAUSE = 0.5  # seconds, before the engine is asked again
MOST_TRIES = 3  # of a portion, if the engine's process ends

Found = tuple[str, dict[str, Any] | HttpError]


class _Place(NamedTuple):
    """Where an answer belongs: the line, and the place among the line's answers."""

    line: int
    at: int


class Portion:
    """Some lines of a batch, asked together. declared: the batch as a relQuery. told: called when
    answers have been written."""

    def __init__(
        self,
        lines: Sequence[Line],
        server: Server,
        asker: Asker,
        declared: Declared,
        results: Results,
        told: Callable[[], None],
    ) -> None:
        self._server, self._asker, self._results, self._told = server, asker, results, told
        self._declared = declared
        self._open = {
            line.custom_id: line.question
            for line in lines
            if not isinstance(line.question, HttpError)
        }
        self._wrong: list[Found] = [
            (line.custom_id, line.question)
            for line in lines
            if isinstance(line.question, HttpError)
        ]

    async def run(self) -> None:
        """Answer all lines. Raises HttpError if the server stops."""
        await self._write(self._wrong)
        await self._answer(list(self._open))

    async def _answer(self, names: list[str]) -> None:
        """Ask lines; what breaks them is the answer to those that are left. A sampling that the
        engine cannot follow breaks only its own lines."""
        failure = await self._try(names)
        left = [name for name in names if name in self._open]
        if failure is None or not left:
            return
        alike = self._alike(left)
        if failure.status < 500 and len(alike) > 1:
            for some in alike:
                await self._answer(some)
        else:
            await self._write([(name, failure) for name in left])

    async def _try(self, names: list[str]) -> HttpError | None:
        """What breaks the lines. If the engine's process ends, those without an answer are asked
        again, unless that happens again and again."""
        failure = None
        for _ in range(MOST_TRIES):
            try:
                await self._ask([name for name in names if name in self._open])
                return None
            except EngineEndedError as error:
                failure = as_http(error)
                await asyncio.sleep(PAUSE)
            except Exception as error:
                if self._server.stopping:
                    raise
                return as_http(error)
        return failure

    async def _ask(self, names: list[str]) -> None:
        groups, places = grouped([self._open[name] for name in names])
        if not groups:
            return
        flow = await self._start(groups)
        try:
            async for found in self._answered(flow, names, places):
                await self._write(found)
        finally:
            flow.close()

    def _alike(self, names: list[str]) -> list[list[str]]:
        """Lines apart by their sampling."""
        found: dict[tuple[Sampling, ...], list[str]] = {}
        for name in names:
            key = tuple(each.sampling for each in self._open[name].groups)
            found.setdefault(key, []).append(name)
        return list(found.values())

    async def _start(self, groups: list[Asked]) -> Flow:
        """Raises HttpError if it cannot be asked; waits while too many requests are open."""
        size = sum(len(each.prompts) for each in groups)
        while True:
            try:
                return self._server.start(groups, self._asker, declared=self._declared)
            except HttpError as error:
                if error.status != 429 or size > self._server.config.max_waiting:
                    raise
            await asyncio.sleep(PAUSE)

    async def _answered(
        self, flow: Flow, names: list[str], places: list[_Place]
    ) -> AsyncIterator[list[Found]]:
        """The lines whose answers are all there, as they come."""
        answers: dict[int, dict[int, Answer]] = {}
        while parts := await flow.some():
            whole = []
            for part in parts:
                line, at = places[part.at]
                assert part.answer is not None
                found = answers.setdefault(line, {})
                found[at] = part.answer
                question = self._open[names[line]]
                if len(found) == len(question.places):
                    del answers[line]
                    in_order = [found[each] for each in range(len(found))]
                    whole.append((names[line], await _shown(question, in_order)))
            yield whole

    async def _write(self, found: list[Found]) -> None:
        if found:
            await to_its_end(self._results.add, found)
            for custom_id, _ in found:
                self._open.pop(custom_id, None)
            self._told()


async def _shown(question: Question, answers: list[Answer]) -> dict[str, Any] | HttpError:
    try:
        return await question.form.whole(question.in_order(answers))
    except HttpError as error:
        return error


def grouped(questions: Sequence[Question]) -> tuple[list[Asked], list[_Place]]:
    """Prompts that are asked of one adapter with equal sampling together, in their order; and where
    the answer to each belongs."""
    groups: dict[tuple[Sampling, str], tuple[list[Prompt], list[_Place]]] = {}
    for line, question in enumerate(questions):
        for at, (prompt, how) in enumerate(_each(question)):
            prompts, places = groups.setdefault(how, ([], []))
            prompts.append(prompt)
            places.append(_Place(line, at))
    asked = [Asked(prompts, *how) for how, (prompts, _) in groups.items()]
    return asked, [place for _, places in groups.values() for place in places]


def _each(question: Question) -> Iterator[tuple[Prompt, tuple[Sampling, str]]]:
    for prompts, sampling, adapter in question.groups:
        for prompt in prompts:
            yield prompt, (sampling, adapter)
