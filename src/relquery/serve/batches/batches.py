"""All batches of a server: they are made, run and cancelled, and outlive the server's process."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from relquery.engine.requests.declared import Declared
from relquery.serve.auth import Identity
from relquery.serve.batches.lines import AnsweredLine, Results, Wrong, read_lines, validate
from relquery.serve.batches.store import (
    HIDDEN,
    Files,
    RecordStore,
    StoredFile,
    once_there_is_room,
    to_its_end,
)
from relquery.serve.errors import HttpError, bad_request, body_of, stopping
from relquery.serve.server import RequestScope, Server

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
MESSAGES = "/v1/messages"
"""The endpoint of batches of Anthropic's API."""


@dataclass(slots=True)
class BatchRecord:
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


class ServerBatches:
    """The batches of a server, and the files. The event loop uses it.

    Its constructor reads the folder, and waits for the disk.
    """

    def __init__(self, server: Server, folder: Path) -> None:
        self.files = Files(folder)
        self._server, self._records = server, RecordStore(folder / "batches", BatchRecord)
        unfinished = [each for each in self._records.known.values() if not each.is_over]
        self.files.sweep({name for each in unfinished for name in (each.output, each.errors)})
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._saving = asyncio.Lock()

    def resume(self) -> None:
        """Go on with all batches that have not ended."""
        for record in self._records.known.values():
            if not record.is_over:
                self._begin(record)

    async def stop(self) -> None:
        """Stop running; what is not answered is answered after the next start."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def of(self, tenant: str, *, messages: bool = False) -> list[BatchRecord]:
        """A tenant's batches, the latest first. messages: those of Anthropic's API."""
        mine = reversed(self._records.of(tenant))
        return [each for each in mine if each.has_messages is messages]

    def find(self, name: str, tenant: str, *, messages: bool = False) -> BatchRecord:
        """A tenant's batch. Raises HttpError if there is none."""
        record = self._records.known.get(name)
        if record is None or record.tenant != tenant or record.has_messages is not messages:
            raise HttpError(404, f"No batch found with id '{name}'.", "not_found", "batch_id")
        return record

    def reads(self, file: StoredFile) -> bool:
        """Whether a batch that has not ended still reads a file."""
        every = self._records.known.values()
        return any(each.input == file.id and not each.is_over for each in every)

    async def create(self, file: StoredFile, endpoint: str, **more: Any) -> BatchRecord:
        """A new batch, which begins to run. more: other fields of the record."""
        ids = Files.new_id(), Files.new_id()
        record = BatchRecord(file.tenant, endpoint, file.id, *ids, **more)
        async with self._saving:  # so that the latest is the last
            await to_its_end(self._records.save, record)
        self._records.known[record.id] = record
        self._begin(record)
        await asyncio.sleep(0)  # a task that is cancelled before its first step never notices
        return record

    async def cancel(self, record: BatchRecord) -> None:
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
                await to_its_end(self._records.save, record)

    async def delete(self, record: BatchRecord) -> None:
        """Remove a batch, its input and its answers. Raises HttpError for one that runs."""
        if not record.is_over:
            raise HttpError(
                409, "The batch has not ended. Cancel it, or wait until it has ended.", "conflict"
            )
        self._records.known.pop(record.id, None)
        await to_its_end(self._records.remove, record.id)
        for name in (record.input, record.output, record.errors):
            await self.files.delete(name)

    def _begin(self, record: BatchRecord) -> None:
        run = _Run(self._server, record, self.files, self._save)
        task = asyncio.create_task(run.to_its_end(), name=record.id)
        self._tasks[record.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(record.id, None))

    async def _save(self, record: BatchRecord) -> None:
        """Once the disk has room for it."""
        async with self._saving:
            await once_there_is_room(self._records.save, record)


class _Run:
    """One batch on its way. save: writes its record."""

    def __init__(
        self,
        server: Server,
        record: BatchRecord,
        files: Files,
        save: Callable[[BatchRecord], Awaitable[None]],
    ) -> None:
        self._server, self._record, self._files, self._save = server, record, files, save
        self.results = Results(files.path(record.output), files.path(record.errors))
        self._input = files.path(record.input)
        self._ready: list[AnsweredLine] = []
        self._writing = asyncio.Lock()

    async def to_its_end(self) -> None:
        """From where the batch is."""
        record = self._record
        try:
            answered = await to_its_end(self.results.recover)
            if record.status == "validating" and not await self._validate():
                return
            if record.status == "in_progress":
                await self._answer(answered)
            await self._finish("cancelled" if record.status == "cancelling" else "completed")
        except asyncio.CancelledError:
            if record.status != "cancelling":
                raise
            await self._finish("cancelled")
        except LostKeyError:
            message = f"The key '{record.key}' of this batch was removed or has expired."
            record.wrong = [Wrong("invalid_api_key", message)._asdict()]
            await self._finish("failed")
        except Exception:
            if self._server.admission.stopping:
                return
            _LOG.exception("batch %s failed", record.id)
            await self._finish("failed")

    async def _validate(self) -> bool:
        record = self._record
        count, wrong = await asyncio.to_thread(validate, self._input, record.endpoint, self._server)
        record.total = count if not wrong else 0
        record.wrong = [each._asdict() for each in wrong]
        record.become("failed" if wrong else "in_progress")
        await self._save(record)
        return not wrong

    async def _answer(self, answered: set[str]) -> None:
        """Ask all lines that have no answer, as one relQuery. Raises LostKeyError."""
        record, open_ = self._record, asyncio.Semaphore(await self._most())
        record.completed, record.failed = self.results.succeeded, self.results.failed
        declared = Declared(record.id, max(1, record.total - len(answered)))
        reading = (each for each in read_lines(self._input) if each["custom_id"] not in answered)
        is_lost = False
        async with asyncio.TaskGroup() as every:
            while not is_lost and (
                some := await asyncio.to_thread(lambda: list(islice(reading, _READ)))
            ):
                for line in some:
                    await open_.acquire()
                    identity = await self._its_turn()
                    if is_lost := identity is None:
                        break
                    await self._room()
                    scope = RequestScope(self._server, identity, usual=declared)
                    asked = every.create_task(self.ask(line, scope))
                    asked.add_done_callback(lambda _: open_.release())
                    await asyncio.sleep(0)  # it begins, and counts as open
        if is_lost:
            raise LostKeyError

    async def _most(self) -> int:
        """Lines that the batch asks at once: with a limit, those of about a minute's tokens."""
        identity = await self._its_turn()
        limit = None if identity is None or identity.limits is None else identity.limits.most[1]
        most = max(1, self._server.config.max_waiting // 4)
        return most if limit is None else min(most, max(1, limit // USUAL_TOKENS))

    async def _its_turn(self) -> Identity | None:
        """Who asks for the batch, once its key's tokens are not used up; None for a lost key."""
        while True:
            identity = self._server.gate.of_key(self._record.key, self._record.tenant)
            if identity is None or identity.limits is None or not (wait := identity.limits.wait()):
                return identity
            await asyncio.sleep(min(wait, LONGEST_SLEEP))

    async def _room(self) -> None:
        """Wait until batches leave half of the queue to others."""
        most = self._server.config.max_waiting // 2
        while (open_ := self._server.admission.open) and open_ >= most:
            await asyncio.sleep(_SOON)

    async def ask(self, line: dict[str, Any], scope: RequestScope) -> None:
        """Ask a line, and write its answer. Raises HttpError if the server stops."""
        request = f"req_{secrets.token_hex(12)}"
        if line["body"].get("stream"):
            refused = bad_request("A batch cannot be streamed.", "stream", "unsupported")
            status, body = refused.status, body_of(refused, self._record.endpoint, request)
        else:
            status, body = await self._call(line["body"], scope, request)
        self._ready.append(AnsweredLine(line["custom_id"], status, body, request))
        async with self._writing:  # what has come meanwhile is written at once
            if self._ready:
                some, self._ready = self._ready, []
                await once_there_is_room(self.results.add, some)
                self._record.completed = self.results.succeeded
                self._record.failed = self.results.failed

    async def _call(self, asked: Any, scope: RequestScope, request: str) -> tuple[int, Any]:
        """The status and the body of an answer. If the queue is full, or the engine's process ends,
        the line is asked again; if that happens again and again, its end is the answer."""
        content, tries = json.dumps(asked).encode(), 0
        while True:
            path = self._record.endpoint
            status, answer = await self._server.call(scope, "POST", path, content, request)
            if status != 200 and self._server.admission.stopping:
                raise stopping()
            tries += status == 503
            if status != 429 and (status != 503 or tries == MOST_TRIES):
                return status, json.loads(answer)
            await asyncio.sleep(PAUSE)

    async def _finish(self, status: Status) -> None:
        """Make known what was written."""
        record, results = self._record, self.results
        if status == "completed":
            record.become("finalizing")
            await self._save(record)
        record.completed, record.failed = results.succeeded, results.failed
        whose = record.tenant, HIDDEN if record.has_messages else "batch_output"
        if results.succeeded:
            await self._files.adopt(record.output, f"{record.id}_output.jsonl", *whose)
            record.has_output = True
        if results.failed:
            await self._files.adopt(record.errors, f"{record.id}_error.jsonl", *whose)
            record.has_errors = True
        record.become(status)
        await self._save(record)


@asynccontextmanager
async def batching(server: Server) -> AsyncIterator[None]:
    """A block in which a server has batches and files, in `config.state` or a temporary folder."""
    temporary = None
    folder = server.config.state
    if folder is None:
        temporary = TemporaryDirectory(prefix="relquery-serve-")
        folder = Path(temporary.name)
    batches = await asyncio.to_thread(ServerBatches, server, folder)
    server.keep(batches, batches.files)
    batches.resume()
    try:
        yield
    finally:
        await batches.stop()
        if temporary is not None:
            await asyncio.to_thread(temporary.cleanup)
