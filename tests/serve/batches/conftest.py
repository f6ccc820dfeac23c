"""What tests of batches share."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from typing import Any

import openai
import pytest
from openai.types import Batch

REVIEW = "Is the review positive?\nreviewcontent: A wonderful film with a strong plot.\n"
CHAT = "/v1/chat/completions"


def line(number: int, url: str = CHAT, **body: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": REVIEW}]
    given = {"model": "demo", "messages": messages, "temperature": 0} | body
    return {"custom_id": f"row-{number}", "method": "POST", "url": url, "body": given}


def uploaded(client: openai.OpenAI, lines: Iterable[Any]) -> str:
    """The id of a file with these lines; text is written as it is."""
    texts = (each if isinstance(each, str) else json.dumps(each) for each in lines)
    content = "".join(f"{text}\n" for text in texts).encode()
    return client.files.create(file=("lines.jsonl", content), purpose="batch").id


def ended(client: openai.OpenAI, batch: Batch) -> Batch:
    """The batch, once nothing more happens to it."""
    until = time.monotonic() + 100
    while batch.status not in ("completed", "failed", "cancelled"):
        assert time.monotonic() < until, f"the batch is still {batch.status}"
        time.sleep(0.05)
        batch = client.batches.retrieve(batch.id)
    return batch


def results(client: openai.OpenAI, file: str | None) -> dict[str, Any]:
    """What a result file has for each custom id."""
    assert file is not None
    lines = [json.loads(text) for text in client.files.content(file).text.splitlines()]
    found = {each["custom_id"]: each["response"] for each in lines}
    assert len(found) == len(lines), "a request has two answers"
    return found


def begun(client: openai.OpenAI, file: str, endpoint: Any = CHAT, **more: Any) -> Batch:
    more |= {"endpoint": endpoint, "completion_window": "24h"}
    return client.batches.create(input_file_id=file, **more)


Run = Callable[..., Batch]


@pytest.fixture
def run(client: openai.OpenAI) -> Run:

    def run(lines: Iterable[Any], endpoint: Any = CHAT) -> Batch:
        return ended(client, begun(client, uploaded(client, lines), endpoint))

    return run
