"""Files, with OpenAI's client."""

from __future__ import annotations

from typing import Any

import openai
import pytest

CONTENT = b'{"a": 1}\n' * 1000


def test_a_file_comes_back_as_it_was_sent(client: openai.OpenAI) -> None:
    file = client.files.create(file=("lines.jsonl", CONTENT), purpose="batch")
    assert (file.filename, file.bytes, file.purpose) == ("lines.jsonl", len(CONTENT), "batch")
    assert client.files.retrieve(file.id) == file
    assert client.files.content(file.id).content == CONTENT


def test_a_files_name_says_nothing_about_where_it_lies(client: openai.OpenAI) -> None:
    file = client.files.create(file=("../../../x.jsonl", CONTENT), purpose="batch")
    assert file.id.startswith("file-")
    assert client.files.content(file.id).content == CONTENT
    for name in ("..%2F..%2Fx", "file-1", file.id + "%00"):
        with pytest.raises(openai.NotFoundError):
            client.files.content(name)


def test_files_are_listed_until_they_are_deleted(client: openai.OpenAI) -> None:
    first, second = (
        client.files.create(file=("x.jsonl", CONTENT), purpose="batch").id for _ in range(2)
    )
    listed = [file.id for file in client.files.list(limit=1)]  # page by page
    assert listed.index(second) < listed.index(first)  # a batch that ends may add others
    assert len(client.files.list(limit=1).data) == 1
    assert client.files.delete(first).deleted
    assert first not in [file.id for file in client.files.list()]
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(first)


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"purpose": "vision"}, "purpose"),
        ({"purpose": "batch", "extra_body": {"colour": "red"}}, "colour"),
    ],
)
def test_other_purposes_and_fields_are_refused(
    client: openai.OpenAI, more: Any, param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.files.create(file=("x.jsonl", CONTENT), **more)
    assert caught.value.param == param
