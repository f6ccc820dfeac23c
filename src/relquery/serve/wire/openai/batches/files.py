"""Files that clients have uploaded, or that batches have written."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from relquery.serve.errors import HttpError
from relquery.serve.wire.openai.batches.folder import Folder, private
from relquery.serve.wire.openai.batches.writing import to_its_end

MOST_FILES = 1_000
"""Of one tenant."""
MOST_BYTES = 4 << 30
"""Of all files of one tenant."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a tenant. bytes: its size. created_at: seconds since 1970."""

    id: str
    tenant: str
    filename: str
    purpose: str
    bytes: int
    created_at: int


class Files:
    """All files of a server. The event loop uses it; the disk is used by threads.

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

    def of(self, tenant: str) -> list[StoredFile]:
        """A tenant's files, the latest last."""
        return [each for each in self._known.values() if each.tenant == tenant]

    def find(self, name: str, tenant: str) -> StoredFile:
        """A tenant's file. Raises HttpError if there is none."""
        found = self._known.get(name)
        if found is None or found.tenant != tenant:
            raise HttpError(404, f"No such File object: {name}", "not_found", "id")
        return found

    async def upload(
        self, source: BinaryIO, filename: str, purpose: str, tenant: str
    ) -> StoredFile:
        """Keep a copy of what a client has sent. Raises HttpError if it has too much already."""
        there = self.of(tenant)
        if len(there) >= MOST_FILES or sum(each.bytes for each in there) >= MOST_BYTES:
            raise HttpError(
                400,
                f"There are {len(there):,} files, which is all that the server keeps for one "
                "user. Delete files that are no longer needed.",
                "too_many_files",
            )
        name = self.new_id()
        try:
            await to_its_end(_copy, source, self.path(name))
            return await self.adopt(name, filename, purpose, tenant)
        finally:
            if name not in self._known:  # the client has left, or the disk is full
                self._remove(name)

    async def adopt(self, name: str, filename: str, purpose: str, tenant: str) -> StoredFile:
        """Make a file known whose content lies where it belongs."""
        size = (await asyncio.to_thread(self.path(name).stat)).st_size
        found = StoredFile(name, tenant, filename, purpose, size, int(time.time()))
        await to_its_end(self._folder.save, name, asdict(found))
        self._known[name] = found
        return found

    async def delete(self, file: StoredFile) -> None:
        """Remove a file and its content."""
        self._known.pop(file.id, None)
        await to_its_end(self._remove, file.id)

    def _remove(self, name: str) -> None:
        self._folder.delete(name)
        self.path(name).unlink(missing_ok=True)


def _copy(source: BinaryIO, target: Path) -> None:
    source.seek(0)
    with open(target, "wb", opener=private) as file:
        shutil.copyfileobj(source, file)
