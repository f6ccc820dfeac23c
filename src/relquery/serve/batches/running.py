"""One batch on its way: portions of its lines are asked, and answers are written as they come."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from relquery.engine.requests.declared import Declared
from relquery.errors import EngineEndedError
from relquery.prompt import Answer, Prompt, Sampling
from relquery.serve.batches.lines import Line
from relquery.serve.errors import HttpError, as_http, openai_body
from relquery.serve.server import Asked, NamedModel, Question, RequestScope
from relquery.serve.store import once_there_is_room, private
from relquery.serve.streaming import AnswerStream

PAUSE = 0.5  # seconds, before the engine is asked again
MOST_TRIES = 3  # of a portion, if the engine's process ends

Found = tuple[str, dict[str, Any] | HttpError]


class Results:
    """The output and the errors of one batch; any thread may add to them.

    succeeded, failed: lines of each.
    """

    def __init__(self, output: Path, errors: Path) -> None:
        self._output, self._errors = output, errors
        self._lock = Lock()
        self.succeeded = self.failed = 0

    def recover(self) -> set[str]:
        """The ids of requests that have an answer from an earlier run; half a line is removed."""
        with self._lock:
            succeeded, failed = _recover(self._output), _recover(self._errors)
            self.succeeded, self.failed = len(succeeded), len(failed)
        return succeeded | failed

    def add(self, lines: Iterable[Found]) -> None:
        """Write answers: (custom_id, body or error). Each is on disk, or on its way, after this.

        All are written or none: raises OSError where there is no room.
        """
        good: list[bytes] = []
        bad: list[bytes] = []
        for custom_id, found in lines:
            (bad if isinstance(found, HttpError) else good).append(_line(custom_id, found))
        with self._lock:
            written = _append(self._output, good)
            try:
                _append(self._errors, bad)
            except OSError:
                os.truncate(self._output, written)
                raise
            self.succeeded += len(good)
            self.failed += len(bad)


def _line(custom_id: str, found: dict[str, Any] | HttpError) -> bytes:
    status = found.status if isinstance(found, HttpError) else 200
    line = {
        "id": f"batch_req_{secrets.token_hex(12)}",
        "custom_id": custom_id,
        "response": {
            "status_code": status,
            "request_id": f"req_{secrets.token_hex(12)}",
            "body": openai_body(found) if isinstance(found, HttpError) else found,
        },
        "error": None,
    }
    return json.dumps(line).encode() + b"\n"


def _append(path: Path, lines: list[bytes]) -> int:
    """Write lines, all or none; the size of the file before."""
    if not lines:
        return path.stat().st_size if path.exists() else 0
    with open(path, "ab", buffering=0, opener=private) as file:
        size = file.tell()
        content = memoryview(b"".join(lines))
        try:
            while content:
                content = content[file.write(content) :]
        except OSError:
            file.truncate(size)
            raise
    return size


def _recover(path: Path) -> set[str]:
    """The custom ids of all whole lines; what follows them is cut off."""
    if not path.exists():
        return set()
    found, size = set(), 0
    with path.open("r+b") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break
            found.add(str(json.loads(line)["custom_id"]))
            size += len(line)
        file.truncate(size)
    return found


class _Place(NamedTuple):
    """Where an answer belongs: the line, and the place among the line's answers."""

    line: str
    at: int


class Portion:
    """Some lines of a batch, asked together.

    scope: asks for them. declared: the batch as a relQuery, for lines that declare none. told:
    called when answers have been written.
    """

    def __init__(
        self,
        lines: Sequence[Line],
        scope: RequestScope,
        declared: Declared,
        results: Results,
        told: Callable[[], None],
    ) -> None:
        self._scope, self._results, self._told = scope, results, told
        self._open: dict[str, Question] = {}
        self._wrong: list[Found] = []
        self._relqueries: dict[Declared, list[str]] = {}
        for line in lines:
            if isinstance(line.question, HttpError):
                self._wrong.append((line.custom_id, line.question))
            else:
                self._open[line.custom_id] = line.question
                whose = declared if line.declared is None else line.declared
                self._relqueries.setdefault(whose, []).append(line.custom_id)

    async def run(self) -> None:
        """Answer all lines. Raises HttpError if the server stops."""
        await self._write(self._wrong)
        async with asyncio.TaskGroup() as every:
            for declared, names in self._relqueries.items():
                every.create_task(self._answer(names, declared))

    async def _answer(self, names: list[str], declared: Declared) -> None:
        """Ask lines; what breaks them is the answer to those that are left. A sampling that the
        engine cannot follow breaks only its own lines."""
        failure = await self._try(names, declared)
        left = [name for name in names if name in self._open]
        if failure is None or not left:
            return
        alike: dict[tuple[Sampling, ...], list[str]] = {}
        for name in left:
            key = tuple(each.sampling for each in self._open[name].groups)
            alike.setdefault(key, []).append(name)
        if failure.status < 500 and len(alike) > 1:
            for some in alike.values():
                await self._answer(some, declared)
        else:
            await self._write([(name, failure) for name in left])

    async def _try(self, names: list[str], declared: Declared) -> HttpError | None:
        """What breaks the lines. If the engine's process ends, those without an answer are asked
        again, unless that happens again and again."""
        failure = None
        for _ in range(MOST_TRIES):
            groups, places = grouped(
                {name: self._open[name] for name in names if name in self._open}
            )
            if not groups:
                return None
            try:
                stream = await self._start(groups, declared)
                try:
                    async for found in self._answered(stream, places):
                        await self._write(found)
                finally:
                    stream.close()
                return None
            except EngineEndedError as error:
                failure = as_http(error)
                await asyncio.sleep(PAUSE)
            except Exception as error:
                if self._scope.server.admission.stopping:
                    raise
                return as_http(error)
        return failure

    async def _start(self, groups: list[Asked], declared: Declared) -> AnswerStream:
        """Raises HttpError if it cannot be asked; waits while too many requests are open."""
        size = sum(len(each.prompts) for each in groups)
        while True:
            try:
                return self._scope.start(groups, declared)
            except HttpError as error:
                if error.status != 429 or size > self._scope.server.config.max_waiting:
                    raise
            await asyncio.sleep(PAUSE)

    async def _answered(
        self, stream: AnswerStream, places: list[_Place]
    ) -> AsyncIterator[list[Found]]:
        """The lines whose answers are all there, as they come."""
        answers: dict[str, dict[int, Answer]] = {}
        while parts := await stream.some():
            whole: list[Found] = []
            for part in parts:
                name, at = places[part.at]
                assert part.answer is not None
                found = answers.setdefault(name, {})
                found[at] = part.answer
                question = self._open[name]
                if len(found) == len(question.places):
                    del answers[name]
                    in_order = [found[each] for each in range(len(found))]
                    whole.append((name, await _shown(question, in_order)))
            yield whole

    async def _write(self, found: list[Found]) -> None:
        if found:
            await once_there_is_room(self._results.add, found)
            for custom_id, _ in found:
                self._open.pop(custom_id, None)
            self._told()


async def _shown(question: Question, answers: list[Answer]) -> dict[str, Any] | HttpError:
    try:
        found: dict[str, Any] = await question.form.whole(question.in_order(answers))
    except HttpError as error:
        return error
    return found


def grouped(questions: dict[str, Question]) -> tuple[list[Asked], list[_Place]]:
    """Prompts that are asked of one model with equal sampling together, in their order; and where
    the answer to each belongs."""
    groups: dict[tuple[Sampling, NamedModel], tuple[list[Prompt], list[_Place]]] = {}
    for name, question in questions.items():
        at = 0
        for prompts, sampling, model in question.groups:
            some, places = groups.setdefault((sampling, model), ([], []))
            some += prompts
            places += (_Place(name, at + each) for each in range(len(prompts)))
            at += len(prompts)
    asked = [Asked(prompts, *how) for how, (prompts, _) in groups.items()]
    return asked, [place for _, places in groups.values() for place in places]
