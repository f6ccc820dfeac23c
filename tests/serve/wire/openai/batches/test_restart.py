"""A server that is killed goes on with its batches when it is started again."""

from __future__ import annotations

import time
from pathlib import Path

import openai

from tests.serve.conftest import started
from tests.serve.wire.openai.batches.conftest import CHAT, ended, line, results, uploaded

MODEL = "simulated:step=0.002"
ROWS = 300
FEW_AT_ONCE = 40
"""A quarter of them is asked together, so that the batch is far from its end at first answers."""


def test_answers_from_before_are_kept_and_all_others_asked(tmp_path: Path) -> None:
    lines = [line(at, temperature=2, seed=at, max_tokens=60) for at in range(ROWS)]
    with started(MODEL, names=("demo",), state=tmp_path, max_waiting=FEW_AT_ONCE) as server:
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
            batch = client.batches.create(
                input_file_id=uploaded(client, lines), endpoint=CHAT, completion_window="24h"
            )
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
