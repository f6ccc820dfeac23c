"""Files and JSON objects on the disk, which may be full: nothing is left there half-way."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO, Generic, ParamSpec, TypeVar

from relquery.serve.auth import private, write_whole
from relquery.serve.errors import FULL, HttpError, as_http, bad_request

_LOG = logging.getLogger(__name__)
_P = ParamSpec("_P")
_T = TypeVar("_T")
MOST_FILES = 1_000
"""Of one tenant."""
MOST_BYTES = 4 << 30
"""Of all files of one tenant."""
MOST_TEXT = 8 << 20
"""Bytes of a file that is a part of a prompt."""
HIDDEN = "message_batch"
"""The purpose of files that clients read through the batch that they belong to."""
ROOM_PAUSE = 1.0
"""Seconds between two tries on a full disk."""


async def to_its_end(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Call a function in a thread. Who is cancelled meanwhile goes on when the thread has ended,
    so that what follows does not write beside it. A full disk is an HttpError."""
    thread = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    cancelled: asyncio.CancelledError | None = None
    while not thread.done():
        try:
            await asyncio.wait([thread])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        thread.exception()  # nobody else asks for it
        raise cancelled
    try:
        return thread.result()
    except OSError as error:
        raise (as_http(error) if error.errno in FULL else error) from error


async def once_there_is_room(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """The same, again and again as long as the disk is full."""
    waits = False
    while True:
        try:
            return await to_its_end(function, *args, **kwargs)
        except HttpError as error:
            if error.status != 507:
                raise
            if not waits:
                _LOG.error("%s A batch waits for room.", error)
            waits = True
        await asyncio.sleep(ROOM_PAUSE)


K = TypeVar("K")
"""A dataclass of what JSON has, among it id, tenant and created_at."""


class RecordStore(Generic[K]):
    """Records of tenants: all in memory, and each in a file of JSON, whole or not at all.

    Making it, `save` and `remove` wait for the disk. Ids are made here, never by clients.
    """

    def __init__(self, path: Path, kind: Callable[..., K]) -> None:
        self.folder = path
        # Prompts and answers are nobody else's business, also where the folder was there before.
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
        for half in path.glob(".*.new"):  # what a killed process has begun to write
            half.unlink()
        records: list[Any] = sorted(self._read(kind), key=attrgetter("created_at"))
        self.known: dict[str, K] = {each.id: each for each in records}

    def _read(self, kind: Callable[..., K]) -> Iterator[K]:
        for path in sorted(self.folder.glob("*.json")):
            try:
                yield kind(**json.loads(path.read_text(encoding="utf-8")))
            except (TypeError, ValueError):
                _LOG.error("%s is damaged and is passed over", path)

    def of(self, tenant: str) -> list[K]:
        """A tenant's records, the latest last."""
        every: Iterable[Any] = self.known.values()
        return [each for each in every if each.tenant == tenant]

    def save(self, record: Any) -> None:
        """Write a record, which is known to others once it is in `known`."""
        write_whole(self.folder / f"{record.id}.json", json.dumps(asdict(record)))

    def remove(self, name: str) -> None:
        """Remove what is written of a record, if anything is."""
        (self.folder / f"{name}.json").unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a tenant."""

    id: str
    tenant: str
    filename: str
    purpose: str
    bytes: int
    """Its size."""
    created_at: int
    """Seconds since 1970."""
    mime_type: str = ""
    """As its client has told it."""


class Files(RecordStore[StoredFile]):
    """The files that clients have uploaded, or batches have written. The event loop uses it; the
    disk is used by threads."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "files", StoredFile)

    def sweep(self, open_: Collection[str]) -> None:
        """Remove what a killed process has left. open_: ids of files that are still written."""
        for path in self.folder.glob("*.content"):
            if path.stem not in open_ and not path.with_suffix(".json").exists():
                path.unlink()

    @staticmethod
    def new_id() -> str:
        """A name for a file that is to be written."""
        return f"file-{secrets.token_hex(12)}"

    def path(self, known: str) -> Path:
        """Where the content lies. known: an id that was made here."""
        return self.folder / f"{known}.content"

    def find(self, name: str, tenant: str) -> StoredFile:
        """A tenant's file. Raises HttpError if there is none."""
        file = self.known.get(name)
        if file is None or file.tenant != tenant:
            raise HttpError(404, f"No such File object: {name}", "not_found", "id")
        return file

    def text(self, name: str, tenant: str) -> str:
        """The content of a tenant's file. Waits for the disk. Raises HttpError for what is none."""
        file = self.find(name, tenant)
        if file.bytes > MOST_TEXT:
            message = f"The file {name} has {file.bytes:,} bytes; a text may have {MOST_TEXT:,}."
            raise bad_request(message, "messages", "too_large")
        try:
            return self.path(name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            message = f"The file {name} is not text in UTF-8, which alone can be read here."
            raise bad_request(message, "messages") from None

    async def upload(
        self, source: BinaryIO, filename: str, purpose: str, tenant: str, mime_type: str = ""
    ) -> StoredFile:
        """Keep a copy of what a client has sent. Raises HttpError if it has too much already."""
        there = self.of(tenant)
        if len(there) >= MOST_FILES or sum(each.bytes for each in there) >= MOST_BYTES:
            raise bad_request(
                f"There are {len(there):,} files, which is all that the server keeps for one "
                "user. Delete files that are no longer needed.",
                code="too_many_files",
            )
        name = self.new_id()
        try:
            await to_its_end(_copy, source, self.path(name))
            file = self._described(name, filename, purpose, tenant, mime_type)
            await to_its_end(self.save, file)
        except BaseException:  # the client has left, or the disk is full
            self.remove(name)
            raise
        self.known[name] = file
        return file

    async def adopt(self, name: str, filename: str, tenant: str, purpose: str) -> None:
        """Make a file known that a batch has written, once the disk has room for that."""
        file = self._described(name, filename, purpose, tenant)
        await once_there_is_room(self.save, file)
        self.known[name] = file

    async def delete(self, name: str) -> None:
        """Remove a file and its content, if there is one."""
        self.known.pop(name, None)
        await to_its_end(self.remove, name)

    def remove(self, name: str) -> None:
        super().remove(name)
        self.path(name).unlink(missing_ok=True)

    def _described(
        self, name: str, filename: str, purpose: str, tenant: str, mime_type: str = ""
    ) -> StoredFile:
        size = self.path(name).stat().st_size
        return StoredFile(name, tenant, filename, purpose, size, int(time.time()), mime_type)


def _copy(source: BinaryIO, target: Path) -> None:
    source.seek(0)
    with open(target, "wb", opener=private) as file:
        shutil.copyfileobj(source, file)
