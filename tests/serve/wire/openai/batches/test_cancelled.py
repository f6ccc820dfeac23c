"""A batch that is cancelled at any moment ends as cancelled, and its record is written in turns."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any

import pytest

from relquery.serve.access.gate import Gate
from relquery.serve.errors import HttpError
from relquery.serve.wire.openai.batches import batches as module
from relquery.serve.wire.openai.batches.batches import Batches
from relquery.serve.wire.openai.batches.files import StoredFile
from relquery.serve.wire.openai.batches.folder import Folder
from relquery.serve.wire.openai.batches.record import ENDED


@pytest.mark.parametrize("wait", range(0, 28, 4))
def test_saves_are_never_beside_each_other(
    wait: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """wait: milliseconds between the batch and its end."""
    busy, save = Lock(), Folder.save

    def slow(folder: Folder, name: str, value: dict[str, Any]) -> None:
        assert busy.acquire(blocking=False)
        time.sleep(0.01)
        save(folder, name, value)
        busy.release()

    monkeypatch.setattr(Folder, "save", slow)
    monkeypatch.setattr(module, "validate", lambda *_: (0, []))
    server: Any = SimpleNamespace(
        config=SimpleNamespace(max_waiting=4), stopping=False, gate=Gate()
    )

    async def run() -> str:
        batches = Batches(server, tmp_path)
        file = StoredFile("file-1", "me", "a.jsonl", "batch", 0, 0)
        batches.files.path(file.id).touch()
        record = await batches.create(file, "/v1/completions", None)
        if wait:
            await asyncio.sleep(wait / 1000)
        with suppress(HttpError):  # it has ended already
            await batches.cancel(record)
        while True:
            (path,) = (tmp_path / "batches").glob("*.json")
            kept = json.loads(path.read_text())
            if kept["status"] in ENDED:
                return str(kept["status"])
            await asyncio.sleep(0.001)

    status = asyncio.run(asyncio.wait_for(run(), 10))
    assert status == "cancelled" or (status == "completed" and wait > 10)
