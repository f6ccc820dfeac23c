"""A batch goes on after a restart, with the limits of the key that it was made with."""

from __future__ import annotations

import time
from pathlib import Path

import openai
import pytest
from openai.types import Batch

from relquery.serve.auth import Key, hash_of, write_keys
from tests.serve.batches.conftest import begun, ended, line, results, uploaded
from tests.serve.conftest import Running, inside, started

MODEL = "simulated:step=0.002"
ROWS = 300
FEW_AT_ONCE = 40
"""A quarter of them is asked together, so that the batch is far from its end at first answers."""


@pytest.mark.long
def test_answers_from_before_are_kept_and_all_others_asked(tmp_path: Path) -> None:
    lines = [line(at, temperature=2, seed=at, max_tokens=60) for at in range(ROWS)]
    with started(MODEL, names=("demo",), state=tmp_path, max_waiting=FEW_AT_ONCE) as server:
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
            batch = begun(client, uploaded(client, lines))
            while not (batch.request_counts and batch.request_counts.completed):
                time.sleep(0.01)
                batch = client.batches.retrieve(batch.id)
        server.process.kill()
        server.process.wait()
    (written,) = (
        path.read_bytes()
        for path in (tmp_path / "files").glob("*.content")
        if path.read_bytes().startswith(b'{"id": "batch_req_')
    )
    before = written[: written.rfind(b"\n") + 1]
    assert 0 < before.count(b"\n") < ROWS
    with (
        started(MODEL, names=("demo",), state=tmp_path, max_waiting=FEW_AT_ONCE) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as client,
    ):
        batch = ended(client, client.batches.retrieve(batch.id))
        assert batch.status == "completed"
        assert set(results(client, batch.output_file_id)) == {f"row-{at}" for at in range(ROWS)}
        assert batch.output_file_id is not None
        assert client.files.content(batch.output_file_id).content.startswith(before)
        assert [each.id for each in client.batches.list()] == [batch.id]


LIMITED = "simulated:step=0.001,length=4"
FEW = Key("few", "ours", hash_of("rq-few"), "rq-few", tokens_per_minute=20)
MANY = Key("many", "ours", hash_of("rq-many"), "rq-many", tokens_per_minute=1_000_000)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    write_keys(path, [FEW, MANY])
    return path


def client(server: Running, key: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)


def begun_by(server: Running, key: str, count: int) -> Batch:
    """A batch of this key; its file is uploaded with the other one."""
    file = uploaded(client(server, "rq-many"), (line(at, max_tokens=4) for at in range(count)))
    return begun(client(server, key), file)


def answered(server: Running, batch: Batch, count: int) -> Batch:
    """The batch once it has so many answers."""
    until = time.monotonic() + 60
    found = batch
    while not found.request_counts or found.request_counts.completed < count:
        assert time.monotonic() < until, found
        time.sleep(0.05)
        found = client(server, "rq-many").batches.retrieve(batch.id)
    return found


def test_a_batch_waits_for_its_key_also_after_a_restart(keys: Path, tmp_path: Path) -> None:
    """Each start lets the key use a minute's worth, which is less than one request."""
    settings = {"names": ("demo",), "keys": keys, "state": tmp_path / "state"}
    with inside(LIMITED, **settings) as server:
        batch = begun_by(server, "rq-few", 5)
        answered(server, batch, 1)
        with pytest.raises(openai.RateLimitError):
            client(server, "rq-few").chat.completions.create(**line(0)["body"])
    kept = "".join(path.read_text() for path in (tmp_path / "state" / "batches").iterdir())
    assert '"few"' in kept
    assert "rq-few" not in kept
    with inside(LIMITED, **settings) as server:
        waiting = answered(server, batch, 2)
        assert waiting.status == "in_progress"
        time.sleep(0.5)
        assert answered(server, batch, 2).request_counts == waiting.request_counts
        write_keys(keys, [MANY])
        with client(server, "rq-many") as other:
            failed = ended(other, waiting)
            assert failed.status == "failed"
            assert failed.errors is not None
            assert failed.errors.data is not None
            assert "The key 'few' of this batch was removed" in str(failed.errors.data[0].message)
            assert len(results(other, failed.output_file_id)) == 2
