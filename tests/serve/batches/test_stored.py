"""What files and batches leave on disk, and whose they are; whoever is cancelled meanwhile."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock
from types import SimpleNamespace
from typing import Any, cast

import pytest

from relquery.serve.auth import Authenticator
from relquery.serve.batches import batches as all_batches
from relquery.serve.batches import store
from relquery.serve.batches.batches import ENDED, BatchRecord, ServerBatches
from relquery.serve.batches.lines import AnsweredLine, Results
from relquery.serve.batches.store import Files, RecordStore, StoredFile, to_its_end
from relquery.serve.errors import HttpError
from relquery.serve.server import Server


def answered(name: str, status: int = 200, x: int = 1) -> AnsweredLine:
    return AnsweredLine(name, status, {"x": x}, "req_1")


def test_a_file_is_found_by_its_tenant_alone_also_after_a_restart(tmp_path: Path) -> None:
    kept = asyncio.run(Files(tmp_path).upload(io.BytesIO(b"x"), "a.jsonl", "batch", "ours"))
    for files in (Files(tmp_path), Files(tmp_path)):
        assert files.find(kept.id, "ours") == kept
        assert files.of("theirs") == []
        with pytest.raises(HttpError, match=kept.id) as caught:
            files.find(kept.id, "theirs")
        assert caught.value.status == 404


def test_a_deleted_file_leaves_nothing_and_a_damaged_object_is_passed_over(tmp_path: Path) -> None:
    async def keep_and_delete() -> None:
        files = Files(tmp_path)
        await files.delete((await files.upload(io.BytesIO(b"x"), "a.jsonl", "batch", "")).id)

    asyncio.run(keep_and_delete())
    assert list((tmp_path / "files").iterdir()) == []
    kept = BatchRecord("me", "/v1/completions", "", "", "")
    RecordStore(tmp_path, BatchRecord).save(kept)
    (tmp_path / "b.json").write_text("{")
    (tmp_path / "c.json").write_text('{"x": 1}')
    assert RecordStore(tmp_path, BatchRecord).known == {kept.id: kept}


def test_what_is_kept_is_its_owners_alone(tmp_path: Path) -> None:
    """Whatever the process's umask is, and also in folders that others could read before."""
    (tmp_path / "files").mkdir(mode=0o755)
    before = os.umask(0)
    try:
        kept = asyncio.run(Files(tmp_path).upload(io.BytesIO(b"x"), "a.jsonl", "batch", "ours"))
        RecordStore(tmp_path / "batches", BatchRecord).save(BatchRecord("", "", "", "", ""))
        results = Results(tmp_path / "files" / "output", tmp_path / "files" / "errors")
        results.add([answered("a"), answered("b", 400)])
    finally:
        os.umask(before)
    assert kept.bytes == 1
    found = {path: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    assert len(found) == 7
    for path, mode in found.items():
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_what_a_killed_process_has_left_is_removed(tmp_path: Path) -> None:
    server = cast(Server, SimpleNamespace(admission=SimpleNamespace(stopping=False)))
    kept = asyncio.run(Files(tmp_path).upload(io.BytesIO(b"x"), "a.jsonl", "batch", "ours"))
    runs, over = (BatchRecord("ours", "/v1/completions", kept.id, f"{n}o", f"{n}e") for n in "12")
    over.become("cancelled")
    for record in (runs, over):
        RecordStore(tmp_path / "batches", BatchRecord).save(record)
    files = tmp_path / "files"
    (files / "damaged.json").write_text("{")
    for name in ("lost", "damaged", "1o", "1e", "2o", "2e"):
        (files / f"{name}.content").touch()
    for folder in ("files", "batches"):
        (tmp_path / folder / ".half.json.0.new").touch()
    ServerBatches(server, tmp_path)
    assert {path.stem for path in files.glob("*.content")} == {kept.id, "damaged", "1o", "1e"}
    assert not list(tmp_path.rglob("*.new"))


def test_half_a_line_is_removed_and_its_request_has_no_answer(tmp_path: Path) -> None:
    results = Results(tmp_path / "output", tmp_path / "errors")
    results.add([answered("a"), answered("b", 400), answered("c")])
    (tmp_path / "output").write_bytes((tmp_path / "output").read_bytes()[:-3])
    later = Results(tmp_path / "output", tmp_path / "errors")
    assert later.recover() == {"a", "b"}
    assert (later.succeeded, later.failed) == (1, 1)
    later.add([answered("c", x=3)])
    lines = map(json.loads, (tmp_path / "output").read_text().splitlines())
    assert [each["response"]["body"] for each in lines] == [{"x": 1}, {"x": 3}]


@pytest.mark.parametrize("wait", range(0, 40, 4))
def test_a_batch_is_cancelled_at_any_time_and_saves_are_one_by_one(
    wait: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """wait: milliseconds between the batch and its end. It is read, and saved, in ten each."""
    busy, save = Lock(), RecordStore.save

    def slow(records: RecordStore[Any], record: Any) -> None:
        assert busy.acquire(blocking=False)
        time.sleep(0.01)
        save(records, record)
        busy.release()

    monkeypatch.setattr(RecordStore, "save", slow)

    def read(*_: object) -> tuple[int, list[object]]:
        time.sleep(0.01)
        return 0, []

    monkeypatch.setattr(all_batches, "validate", read)
    server: Any = SimpleNamespace(
        config=SimpleNamespace(max_waiting=4),
        admission=SimpleNamespace(stopping=False),
        gate=Authenticator(),
    )

    async def run() -> str:
        batches = ServerBatches(server, tmp_path)
        file = StoredFile("file-1", "me", "a.jsonl", "batch", 0, 0)
        batches.files.path(file.id).touch()
        record = await batches.create(file, "/v1/completions")
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


def test_a_full_disk_refuses_uploads_and_batches_and_keeps_nothing_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files can be deleted then, and batches be cancelled."""
    server: Any = SimpleNamespace(admission=SimpleNamespace(stopping=False))
    held, is_full = Event(), False
    monkeypatch.setattr(store, "ROOM_PAUSE", 0.01)
    monkeypatch.setattr(all_batches, "validate", lambda *_: (held.wait(5), []))

    def full(file: int) -> None:
        if is_full:
            raise OSError(errno.ENOSPC, "No space left on device")

    async def run() -> None:
        nonlocal is_full
        batches = ServerBatches(server, tmp_path)
        kept = await batches.files.upload(io.BytesIO(b"{}"), "a.jsonl", "batch", "")
        begun = await batches.create(kept, "/v1/completions")
        is_full = True
        before = {path.name for path in tmp_path.rglob("*")}
        for refused in (
            batches.files.upload(io.BytesIO(b"x"), "b.jsonl", "batch", ""),
            batches.create(kept, "/v1/completions"),
        ):
            with pytest.raises(HttpError) as caught:
                await refused
            assert (caught.value.status, caught.value.code) == (507, "disk_full")
        assert {path.name for path in tmp_path.rglob("*")} == before
        assert batches.of("") == [begun]
        await batches.cancel(begun)
        held.set()
        await batches.files.delete(kept.id)
        assert not batches.files.path(kept.id).exists()
        await asyncio.sleep(0.05)
        assert begun.status == "cancelled"
        is_full = False
        while (
            json.loads((tmp_path / "batches" / f"{begun.id}.json").read_text())["status"]
            != "cancelled"
        ):
            await asyncio.sleep(0.01)
        await batches.stop()

    monkeypatch.setattr(os, "fsync", full)
    asyncio.run(asyncio.wait_for(run(), 20))


@pytest.mark.parametrize("times", [1, 2])
def test_who_is_cancelled_waits_until_the_thread_has_ended(times: int) -> None:
    go, ended = Event(), Event()

    def write() -> None:
        go.wait()
        ended.set()

    async def run() -> None:
        task = asyncio.create_task(to_its_end(write))
        for _ in range(times):
            await asyncio.sleep(0.01)
            task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()

    asyncio.run(run())
