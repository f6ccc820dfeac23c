"""Files and JSON objects on the disk, which may be full: nothing is left there half-way."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, ParamSpec, TypeVar

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


def private(path: str, flags: int) -> int:
    """Opens a file for `open`, which only its owner may read if it is made."""
    return os.open(path, flags, 0o600)


class Folder:
    """JSON objects by id, one file each. Its methods wait for the disk.

    Ids are made here, never by clients.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # Prompts and answers are nobody else's business, also where the folder was there before.
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)

    def all(self) -> Iterator[dict[str, Any]]:
        """All objects; a file that is damaged is passed over, and what a killed process has begun
        to write is removed."""
        for path in self.path.glob("*.new"):
            path.unlink()
        for path in sorted(self.path.glob("*.json")):
            try:
                found = json.loads(path.read_text(encoding="utf-8"))
            except ValueError:
                _LOG.error("%s is damaged and is passed over", path)
            else:
                yield found

    def save(self, name: str, value: dict[str, Any]) -> None:
        """Write an object, whole or not at all."""
        path = self.path / f"{name}.json"
        beside = path.with_suffix(".new")
        try:
            with open(beside, "w", encoding="utf-8", opener=private) as file:
                json.dump(value, file)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise

    def delete(self, name: str) -> None:
        """Remove an object, if there is one."""
        (self.path / f"{name}.json").unlink(missing_ok=True)


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


class Files:
    """What clients have uploaded, or batches have written. The event loop uses it; the disk is used
    by threads.

    Its constructor reads the folder, and waits for the disk.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = Folder(folder / "files")
        found = (StoredFile(**each) for each in self._folder.all())
        self._known = {each.id: each for each in sorted(found, key=lambda each: each.created_at)}

    def sweep(self, open_: Collection[str]) -> None:
        """Remove what a killed process has left. open_: ids of files that are still written."""
        for path in self._folder.path.glob("*.content"):
            if path.stem not in open_ and not path.with_suffix(".json").exists():
                path.unlink()

    @staticmethod
    def new_id() -> str:
        """A name for a file that is to be written."""
        return f"file-{secrets.token_hex(12)}"

    def path(self, known: str) -> Path:
        """Where the content lies. known: an id that was made here."""
        return self._folder.path / f"{known}.content"

    def listed(self, tenant: str) -> list[StoredFile]:
        """Those of a tenant's files that it may see in lists, the latest last."""
        return [each for each in self.of(tenant) if each.purpose != HIDDEN]

    def of(self, tenant: str) -> list[StoredFile]:
        """A tenant's files, the latest last."""
        return [each for each in self._known.values() if each.tenant == tenant]

    def find(self, name: str, tenant: str) -> StoredFile:
        """A tenant's file. Raises HttpError if there is none."""
        found = self._known.get(name)
        if found is None or found.tenant != tenant:
            raise HttpError(404, f"No such File object: {name}", "not_found", "id")
        return found

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
            found = self._described(name, filename, purpose, tenant, mime_type)
            await to_its_end(self._folder.save, name, asdict(found))
        except BaseException:  # the client has left, or the disk is full
            self._remove(name)
            raise
        self._known[name] = found
        return found

    async def adopt(self, name: str, filename: str, tenant: str, purpose: str) -> None:
        """Make a file known that a batch has written, once the disk has room for that."""
        found = self._described(name, filename, purpose, tenant)
        await once_there_is_room(self._folder.save, name, asdict(found))
        self._known[name] = found

    async def delete(self, name: str) -> None:
        """Remove a file and its content, if there is one."""
        self._known.pop(name, None)
        await to_its_end(self._remove, name)

    def _described(
        self, name: str, filename: str, purpose: str, tenant: str, mime_type: str = ""
    ) -> StoredFile:
        size = self.path(name).stat().st_size
        return StoredFile(name, tenant, filename, purpose, size, int(time.time()), mime_type)

    def _remove(self, name: str) -> None:
        self._folder.delete(name)
        self.path(name).unlink(missing_ok=True)


def _copy(source: BinaryIO, target: Path) -> None:
    source.seek(0)
    with open(target, "wb", opener=private) as file:
        shutil.copyfileobj(source, file)
