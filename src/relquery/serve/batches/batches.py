"""All batches of a server: they are made, run and cancelled, and outlive the server's process."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from relquery.engine.requests.declared import Declared
from relquery.errors import EngineEndedError
from relquery.serve.auth import Identity
from relquery.serve.batches.lines import (
    MESSAGES,
    Answered,
    Line,
    Results,
    Wrong,
    unanswered_lines,
    validate,
)
from relquery.serve.batches.store import (
    HIDDEN,
    Files,
    Folder,
    StoredFile,
    once_there_is_room,
    to_its_end,
)
from relquery.serve.errors import HttpError, as_http
from relquery.serve.server import Question, RequestScope, Server
from relquery.serve.streaming import AnswerStream

_LOG = logging.getLogger(__name__)
Status = Literal[
    "validating",
    "failed",
    "in_progress",
    "finalizing",
    "completed",
    "cancelling",
    "cancelled",
]
ENDED: tuple[Status, ...] = ("failed", "completed", "cancelled")


@dataclass(slots=True)
class Record:
    """A batch as it is kept on disk. The first three texts after its endpoint are ids of files."""

    tenant: str
    endpoint: str
    input: str
    output: str
    errors: str
    metadata: dict[str, str] | None = None
    id: str = field(default_factory=lambda: f"batch_{secrets.token_hex(12)}")
    created_at: int = field(default_factory=lambda: int(time.time()))
    status: Status = "validating"
    times: dict[str, int] = field(default_factory=dict)
    """Seconds since 1970, by status."""
    total: int = 0
    completed: int = 0
    failed: int = 0
    has_output: bool = False
    has_errors: bool = False
    """Whether clients know of the output, and of the errors."""
    wrong: list[dict[str, Any]] = field(default_factory=list)
    """With the input, in OpenAI's form."""
    key: str = ""
    """The name of the key that it was made with, whose limits count; "" where none is needed."""

    def become(self, status: Status) -> None:
        """Go on to another status, now."""
        self.status = status
        self.times[status] = int(time.time())

    @property
    def is_over(self) -> bool:
        """Whether nothing more happens to it."""
        return self.status in ENDED

    @property
    def has_messages(self) -> bool:
        """Whether it is one of Anthropic's API."""
        return self.endpoint == MESSAGES


USUAL_TOKENS = 500
"""Of a prompt and its answer, about."""
LONGEST_SLEEP = 1.0
"""Seconds after which a batch looks again at its key, which may have been removed."""
PAUSE = 0.5  # seconds, before the engine is asked again
MOST_TRIES = 3  # of a line, if the engine's process ends
_SOON = 0.02  # seconds until a batch looks again whether there is room in the queue
_READ = 200  # lines that are read at once


class LostKeyError(Exception):
    """The key that a batch was made with is not valid any more."""


class Batches:
    """The batches of a server, and the files. The event loop uses it.

    Its constructor reads the folder, and waits for the disk.
    """

    def __init__(self, server: Server, folder: Path) -> None:
        self.files = Files(folder)
        self._server, self._folder = server, Folder(folder / "batches")
        found = (Record(**each) for each in self._folder.all())
        self._known = {each.id: each for each in sorted(found, key=lambda each: each.created_at)}
        unfinished = [each for each in self._known.values() if not each.is_over]
        self.files.sweep({name for each in unfinished for name in (each.output, each.errors)})
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._saving = asyncio.Lock()

    def resume(self) -> None:
        """Go on with all batches that have not ended."""
        for record in self._known.values():
            if not record.is_over:
                self._begin(record)

    async def stop(self) -> None:
        """Stop running; what is not answered is answered after the next start."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def of(self, tenant: str, *, messages: bool = False) -> list[Record]:
        """A tenant's batches, the latest last. messages: those of Anthropic's API."""
        mine = (each for each in self._known.values() if each.tenant == tenant)
        return [each for each in mine if each.has_messages is messages]

    def find(self, name: str, tenant: str, *, messages: bool = False) -> Record:
        """A tenant's batch. Raises HttpError if there is none."""
        found = self._known.get(name)
        if found is None or found.tenant != tenant or found.has_messages is not messages:
            raise HttpError(404, f"No batch found with id '{name}'.", "not_found", "batch_id")
        return found

    def reads(self, file: StoredFile) -> bool:
        """Whether a batch that has not ended still reads a file."""
        return any(each.input == file.id and not each.is_over for each in self._known.values())

    async def create(self, file: StoredFile, endpoint: str, **more: Any) -> Record:
        """A new batch, which begins to run. more: other fields of the record."""
        ids = Files.new_id(), Files.new_id()
        record = Record(file.tenant, endpoint, file.id, *ids, **more)
        async with self._saving:  # so that the latest is the last
            await to_its_end(self._folder.save, record.id, asdict(record))
        self._known[record.id] = record
        self._begin(record)
        await asyncio.sleep(0)  # a task that is cancelled before its first step never notices
        return record

    async def cancel(self, record: Record) -> None:
        """End a batch; the answers that it has can be read. Raises HttpError if it has ended."""
        if record.is_over:
            raise HttpError(
                409, f"The batch is {record.status} and cannot be cancelled.", "conflict"
            )
        if record.status == "cancelling":
            return
        record.become("cancelling")
        if (task := self._tasks.get(record.id)) is not None:
            task.cancel()  # before anything is awaited, so that it does not become something else
        with suppress(HttpError):  # a full disk: what ends the batch saves it when there is room
            async with self._saving:
                await to_its_end(self._folder.save, record.id, asdict(record))

    async def delete(self, record: Record) -> None:
        """Remove a batch, its input and its answers. Raises HttpError for one that runs."""
        if not record.is_over:
            raise HttpError(
                409, "The batch has not ended. Cancel it, or wait until it has ended.", "conflict"
            )
        self._known.pop(record.id, None)
        await to_its_end(self._folder.delete, record.id)
        for name in (record.input, record.output, record.errors):
            await self.files.delete(name)

    def _begin(self, record: Record) -> None:
        task = asyncio.create_task(self._drive(record), name=record.id)
        self._tasks[record.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(record.id, None))

    async def _drive(self, record: Record) -> None:
        """From where a batch is to its end."""
        results = Results(self.files.path(record.output), self.files.path(record.errors))
        try:
            answered = await to_its_end(results.recover)
            await self._run(record, results, answered)
        except asyncio.CancelledError:
            if record.status != "cancelling":
                raise
            await self._finish(record, results, "cancelled")
        except LostKeyError:
            message = f"The key '{record.key}' of this batch was removed or has expired."
            record.wrong = [Wrong("invalid_api_key", message)._asdict()]
            await self._finish(record, results, "failed")
        except Exception:
            if self._server.admission.stopping:
                return
            _LOG.exception("batch %s failed", record.id)
            await self._finish(record, results, "failed")

    async def _run(self, record: Record, results: Results, answered: set[str]) -> None:
        if record.status == "validating" and not await self._validate(record):
            return
        if record.status == "in_progress":
            await self._answer(record, results, answered)
        is_cancelled = record.status == "cancelling"
        await self._finish(record, results, "cancelled" if is_cancelled else "completed")

    async def _validate(self, record: Record) -> bool:
        path = self.files.path(record.input)
        count, wrong = await asyncio.to_thread(validate, path, record.endpoint, self._server)
        record.total = count if not wrong else 0
        record.wrong = [each._asdict() for each in wrong]
        record.become("failed" if wrong else "in_progress")
        await self._save(record)
        return not wrong

    async def _answer(self, record: Record, results: Results, answered: set[str]) -> None:
        """Ask all lines that have no answer, as one relQuery. Raises LostKeyError."""
        record.completed, record.failed = results.succeeded, results.failed
        declared = Declared(record.id, max(1, record.total - len(answered)))
        asking = _Asking(self._server, record, results, declared)
        path, tenant = self.files.path(record.input), record.tenant
        reading = unanswered_lines(path, record.endpoint, self._server, answered, tenant)
        open_, is_lost = asyncio.Semaphore(await self._most(record)), False
        async with asyncio.TaskGroup() as every:
            while not is_lost and (lines := await asyncio.to_thread(_some, reading)):
                for line in lines:
                    await open_.acquire()
                    identity = await self._its_turn(record)
                    if is_lost := identity is None:
                        break
                    await self._room_for(line.prompts)
                    asked = every.create_task(asking.ask(line, identity))
                    asked.add_done_callback(lambda _: open_.release())
                    await asyncio.sleep(0)  # it begins, and counts as open
        if is_lost:
            raise LostKeyError

    async def _most(self, record: Record) -> int:
        """Lines that a batch asks at once: with a limit, those of about a minute's tokens."""
        identity = await self._its_turn(record)
        limit = None if identity is None or identity.limits is None else identity.limits.most[1]
        most = max(1, self._server.config.max_waiting // 4)
        return most if limit is None else min(most, max(1, limit // USUAL_TOKENS))

    async def _its_turn(self, record: Record) -> Identity | None:
        """Who asks for a batch, once its key's tokens are not used up; None for a lost key."""
        while True:
            identity = self._server.gate.of_key(record.key, record.tenant)
            if identity is None or identity.limits is None or not (wait := identity.limits.wait()):
                return identity
            await asyncio.sleep(min(wait, LONGEST_SLEEP))

    async def _room_for(self, size: int) -> None:
        """Wait until batches would leave half of the queue to others."""
        most = self._server.config.max_waiting // 2
        while self._server.admission.open and self._server.admission.open + size > most:
            await asyncio.sleep(_SOON)

    async def _finish(self, record: Record, results: Results, status: Status) -> None:
        """Make known what was written."""
        if status == "completed":
            record.become("finalizing")
            await self._save(record)
        record.completed, record.failed = results.succeeded, results.failed
        whose = record.tenant, HIDDEN if record.has_messages else "batch_output"
        if results.succeeded:
            await self.files.adopt(record.output, f"{record.id}_output.jsonl", *whose)
            record.has_output = True
        if results.failed:
            await self.files.adopt(record.errors, f"{record.id}_error.jsonl", *whose)
            record.has_errors = True
        record.become(status)
        await self._save(record)

    async def _save(self, record: Record) -> None:
        """Once the disk has room for it."""
        async with self._saving:
            await once_there_is_room(self._folder.save, record.id, asdict(record))


def _some(reading: Iterator[Line]) -> list[Line]:
    return list(islice(reading, _READ))


class _Asking:
    """Asks the lines of one batch. declared: the batch as a relQuery, for lines that have none."""

    def __init__(
        self, server: Server, record: Record, results: Results, declared: Declared
    ) -> None:
        self._server, self._record = server, record
        self._results, self._declared = results, declared
        self._ready: list[Answered] = []
        self._writing = asyncio.Lock()

    async def ask(self, line: Line, identity: Identity) -> None:
        """Ask a line, and write its answer. Raises HttpError if the server stops."""
        found: Any = line.question
        if isinstance(found, Question):
            scope = RequestScope(self._server, identity)
            found = await self._answer(found, scope, line.declared or self._declared)
        self._ready.append((line.custom_id, found))
        async with self._writing:  # what has come meanwhile is written at once
            if self._ready:
                some, self._ready = self._ready, []
                await once_there_is_room(self._results.add, some)
                self._record.completed = self._results.succeeded
                self._record.failed = self._results.failed

    async def _answer(
        self, question: Question, scope: RequestScope, declared: Declared
    ) -> dict[str, Any] | HttpError:
        """The body, or what keeps it from being answered. If the engine's process ends, the
        question is asked again, unless that happens again and again."""
        failure = as_http(EngineEndedError(""))
        for _ in range(MOST_TRIES):
            try:
                stream = await self._start(question, scope, declared)
                try:
                    answers = await stream.answers()
                finally:
                    stream.close()
                found: dict[str, Any] = await question.form.whole(question.in_order(answers))
                return found
            except EngineEndedError as error:
                failure = as_http(error)
                await asyncio.sleep(PAUSE)
            except Exception as error:
                if self._server.admission.stopping:
                    raise
                return as_http(error)
        return failure

    async def _start(
        self, question: Question, scope: RequestScope, declared: Declared
    ) -> AnswerStream:
        """Raises HttpError if it cannot be asked; waits while too many requests are open."""
        while True:
            try:
                return scope.start(question.model, question.groups, declared)
            except HttpError as error:
                if error.status != 429:
                    raise
            await asyncio.sleep(PAUSE)


@asynccontextmanager
async def batching(server: Server) -> AsyncIterator[None]:
    """A block in which a server has batches and files, in `config.state` or a temporary folder."""
    temporary = None
    folder = server.config.state
    if folder is None:
        temporary = TemporaryDirectory(prefix="relquery-serve-")
        folder = Path(temporary.name)
    batches = await asyncio.to_thread(Batches, server, folder)
    server.keep(batches)
    server.keep(batches.files)
    batches.resume()
    try:
        yield
    finally:
        await batches.stop()
        if temporary is not None:
            await asyncio.to_thread(temporary.cleanup)
