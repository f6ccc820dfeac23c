"""Batches of messages and files, with Anthropic's client."""

from __future__ import annotations

import time
from typing import Any

import anthropic
import openai
import pytest

REVIEW = "Is the review positive?\nreviewcontent: A wonderful film with a strong plot.\n"


def params(**more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": REVIEW}]
    return {"model": "demo", "max_tokens": 8, "messages": messages, "temperature": 0} | more


def asked(client: anthropic.Anthropic, **more: Any) -> Any:
    """The same asked by itself; the SDK does not name the temperature any more."""
    given: Any = params(**more)
    return client.messages.create(extra_body={"temperature": given.pop("temperature")}, **given)


def begun(client: anthropic.Anthropic, **requests: dict[str, Any]) -> Any:
    given: Any = [{"custom_id": name, "params": each} for name, each in requests.items()]
    return client.messages.batches.create(requests=given)


def ended(client: anthropic.Anthropic, batch: Any) -> Any:
    until = time.monotonic() + 100
    while batch.processing_status != "ended":
        assert time.monotonic() < until
        time.sleep(0.05)
        batch = client.messages.batches.retrieve(batch.id)
    return batch


def results(client: anthropic.Anthropic, batch: Any) -> dict[str, Any]:
    found = list(client.messages.batches.results(batch.id))
    assert len({each.custom_id for each in found}) == len(found)
    return {each.custom_id: each.result for each in found}


def test_each_request_is_answered_as_by_itself(theirs: anthropic.Anthropic) -> None:
    """What is wrong with one is told in its result alone."""
    wrong = {"other": params(model="other"), "streamed": params(stream=True), "bare": {}}
    batch = begun(theirs, a=params(), b=params(max_tokens=1), **wrong)
    assert (batch.processing_status, batch.results_url) == ("in_progress", None)
    assert batch.request_counts.model_dump()["processing"] == 5
    with pytest.raises(anthropic.AnthropicError, match="No `results_url`"):
        theirs.messages.batches.results(batch.id)
    batch = ended(theirs, batch)
    assert batch.request_counts.model_dump() == {
        "processing": 0,
        "succeeded": 2,
        "errored": 3,
        "canceled": 0,
        "expired": 0,
    }
    assert batch.created_at <= batch.ended_at < batch.expires_at
    found = results(theirs, batch)
    for name, most in (("a", 8), ("b", 1)):
        alone = asked(theirs, max_tokens=most)
        message = found[name].message
        assert (message.content, message.stop_reason) == (alone.content, alone.stop_reason)
        assert message.usage.output_tokens == alone.usage.output_tokens
    errors = {name: found[name].error.error for name in wrong}
    assert errors["other"].type == "not_found_error"
    assert "'other' is not served" in errors["other"].message
    assert errors["streamed"].type == errors["bare"].type == "invalid_request_error"


def test_what_a_cancelled_batch_has_not_answered_is_canceled(theirs: anthropic.Anthropic) -> None:
    long = {f"r{at}": params(temperature=1, max_tokens=500) for at in range(400)}
    batch = theirs.messages.batches.cancel(begun(theirs, **long).id)
    assert batch.processing_status in ("canceling", "ended")
    batch = ended(theirs, batch)
    assert batch.cancel_initiated_at is not None
    counts = batch.request_counts
    assert counts.succeeded + counts.canceled == 400
    kinds = [each.type for each in results(theirs, batch).values()]
    assert [kinds.count("succeeded"), kinds.count("canceled")] == [
        counts.succeeded,
        counts.canceled,
    ]
    assert counts.canceled > 0
    with pytest.raises(anthropic.ConflictError):
        theirs.messages.batches.cancel(batch.id)


def test_batches_are_listed_and_deleted_apart_from_those_of_openai(
    theirs: anthropic.Anthropic, client: openai.OpenAI
) -> None:
    before = len(client.files.list().data)
    mine = [ended(theirs, begun(theirs, a=params(max_tokens=1))).id for _ in range(3)]
    page = theirs.messages.batches.list(limit=2)
    assert [each.id for each in page.data] == [mine[2], mine[1]]
    assert [each.id for each in page][:3] == mine[::-1]
    assert len(client.files.list().data) == before
    assert not set(mine) & {each.id for each in client.batches.list()}
    with pytest.raises(openai.NotFoundError):
        client.batches.retrieve(mine[0])
    assert theirs.messages.batches.delete(mine[0]).type == "message_batch_deleted"
    with pytest.raises(anthropic.NotFoundError):
        theirs.messages.batches.retrieve(mine[0])
    running = begun(theirs, a=params(temperature=1, max_tokens=900), b=params())
    with pytest.raises(anthropic.ConflictError, match="Cancel it"):
        theirs.messages.batches.delete(running.id)
    ended(theirs, theirs.messages.batches.cancel(running.id))


def test_what_is_wrong_with_a_batch_is_told(theirs: anthropic.Anthropic) -> None:
    twice: Any = [{"custom_id": "a", "params": params()}] * 2
    with pytest.raises(anthropic.BadRequestError, match="unique"):
        theirs.messages.batches.create(requests=twice)
    with pytest.raises(anthropic.BadRequestError, match="requests"):
        theirs.messages.batches.create(requests=[])


def test_files_have_the_form_of_anthropics_api(
    theirs: anthropic.Anthropic, client: openai.OpenAI
) -> None:
    content = b"Tea is hot."
    made = [theirs.beta.files.upload(file=(f"{name}.txt", content, "text/plain")) for name in "abc"]
    file = made[0]
    assert (file.type, file.filename, file.mime_type) == ("file", "a.txt", "text/plain")
    assert (file.size_bytes, file.created_at.year > 2000) == (len(content), True)
    assert theirs.beta.files.retrieve_metadata(file.id) == file
    assert theirs.beta.files.download(file.id).read() == content
    assert [each.id for each in theirs.beta.files.list(limit=2)][:3] == [
        each.id for each in reversed(made)
    ]
    assert client.files.retrieve(file.id).bytes == len(content)
    for each in made:
        assert theirs.beta.files.delete(each.id).type == "file_deleted"
    with pytest.raises(anthropic.NotFoundError) as raised:
        theirs.beta.files.retrieve_metadata(file.id)
    assert isinstance(raised.value.body, dict)
    assert raised.value.body["error"]["type"] == "not_found_error"


def test_files_of_text_are_documents_of_messages(theirs: anthropic.Anthropic) -> None:
    """As the same text would be, also in a batch; what is no text is refused."""
    text = "Is the review positive?\nreviewcontent: A wonderful film with a strong plot."
    file = theirs.beta.files.upload(file=("review.txt", text.encode(), "text/plain"))
    data = theirs.beta.files.upload(file=("data.bin", b"\xff\xfe", "application/octet-stream"))

    def content(source: dict[str, str], **more: str) -> Any:
        return [{"role": "user", "content": [{"type": "document", "source": source, **more}]}]

    written = {"type": "text", "media_type": "text/plain", "data": text}
    from_file = {"type": "file", "file_id": file.id}
    plain = [{"role": "user", "content": f"A title\nSaid of it\n{text}\n"}]
    about = {"title": "A title", "context": "Said of it"}
    made = [
        asked(theirs, messages=each)
        for each in (plain, content(written, **about), content(from_file, **about))
    ]
    assert made[0].content == made[1].content == made[2].content
    counts = {message.usage.input_tokens + _cached(message) for message in made}
    assert len(counts) == 1
    batch = ended(theirs, begun(theirs, a=params(messages=content(from_file, **about))))
    assert results(theirs, batch)["a"].message.content == made[0].content
    for source, said in (
        ({"type": "file", "file_id": data.id}, "not text in UTF-8"),
        ({"type": "url", "url": "http://127.0.0.1/"}, "source of type url"),
    ):
        with pytest.raises(anthropic.BadRequestError, match=said):
            asked(theirs, messages=content(source))
    with pytest.raises(anthropic.NotFoundError):
        asked(theirs, messages=content({"type": "file", "file_id": "file-0"}))


def _cached(message: Any) -> int:
    return int(message.usage.cache_read_input_tokens or 0)
