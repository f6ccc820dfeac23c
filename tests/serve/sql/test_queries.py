"""Span queries in the form of the spnl package are answered as in this process."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from relquery.connection import Connection
from relquery.ir.wire import from_wire

REVIEWS = [
    "A dull film with a weak plot, flat characters and a score that never fits.",
    "The camera is fine, but the story is boring from the beginning to the end.",
]


def generate(max_tokens: int = 8, **input: Any) -> dict[str, Any]:
    settings = {"model": "demo", "max_tokens": max_tokens, "temperature": 0.0}
    return {"g": settings | {"input": input}}


def summary(text: str) -> dict[str, Any]:
    return generate(40, user=f"Summarize the review in one sentence.\nreviewcontent: {text}\n")


JUDGED = generate(
    seq=[
        {"user": "Is the review positive? Answer Yes or No.\n"},
        {"plus": [summary(text) for text in REVIEWS]},
    ]
)


def post(client: httpx.Client, path: str, query: Any, **more: Any) -> httpx.Response:
    plain = {"content-type": "text/plain"}  # as the package sends it
    return client.post(f"/v1/query/{path}", content=json.dumps(query), headers=plain, **more)


def contents(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [choice["message"]["content"] for choice in answer.json()["choices"]]


def test_inner_generations_are_as_in_process(client: httpx.Client, local: Connection) -> None:
    answer = post(client, "execute", JUDGED)
    expected = local.run(from_wire(JUDGED).node)
    assert contents(answer) == [expected.text]
    found, report = answer.json(), expected.report
    told = {"prompt_tokens": report.prompt_tokens, "completion_tokens": report.output_tokens}
    assert found["usage"] == found["usage"] | told
    assert found["object"] == "chat.completion"
    with ThreadPoolExecutor(6) as threads:  # several ask at once
        answers = list(threads.map(lambda _: contents(post(client, "execute", JUDGED)), range(6)))
    assert answers == [[expected.text]] * 6


def test_a_repeat_has_choices_and_a_map_is_as_completions(client: httpx.Client) -> None:
    answers = contents(post(client, "execute", {"repeat": {"n": 3, **summary(REVIEWS[0])}}))
    assert answers == answers[:1] * 3
    metadata = {"model": "demo", "max_tokens": 4, "temperature": 0.0}
    query = {"map": {"metadata": metadata, "inputs": ["Hi", "Which topic?"]}}
    found = post(client, "execute", query).json()
    assert found["object"] == "text_completion"
    assert [choice["index"] for choice in found["choices"]] == [0, 1]
    assert all(isinstance(choice["text"], str) for choice in found["choices"])


def test_a_stream_has_the_same_text(client: httpx.Client) -> None:
    answer = post(client, "execute", JUDGED, params={"stream": "true"})
    events = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert events.pop() == "[DONE]"
    parts = [choice for event in events for choice in json.loads(event)["choices"]]
    text = "".join(part["delta"]["content"] for part in parts)
    assert [text] == contents(post(client, "execute", JUDGED))
    assert parts[-1]["finish_reason"] == "stop"


def test_prepared_texts_are_in_the_cache_when_the_query_is_executed(client: httpx.Client) -> None:
    passages = [f"Passage {at}: a boat that nobody else has named." for at in range(6)]
    query = generate(
        4, cross=[{"user": "Which?\n"}, {"plus": [{"user": text} for text in passages]}]
    )
    assert post(client, "prepare", query).json() == {"object": "query.prepared", "prepared": 6}
    usage = post(client, "execute", query).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] > usage["prompt_tokens"] // 2


def test_a_query_retrieves_from_what_came_with_it_or_a_table(client: httpx.Client) -> None:
    docs: tuple[Any, ...] = (["boats", {"Text": "A boat.\n\nA lake."}], "notes.note", "secret.csv")
    for doc, status in zip(docs, (200, 200, 400), strict=True):
        augment = {"body": {"user": "boat"}, "doc": doc}
        query = generate(4, cross=[{"user": "Which?\n"}, {"augment": augment}])
        answer = post(client, "execute", query)
        assert answer.status_code == status
        assert status == 400 or len(contents(answer)) == 1


def test_a_query_that_cannot_be_run_is_refused(client: httpx.Client) -> None:
    for query, status, says in (
        ({"h": {}}, 400, "operator 'h'"),
        ({"g": {"model": "gpt-4", "input": {"user": "Hi"}}}, 404, "gpt-4"),
        ({"g": {"model": "demo"}}, 400, "input"),
    ):
        answer = post(client, "execute", query)
        assert answer.status_code == status
        assert says in answer.json()["error"]["message"]
    for content in (b"{", b"\xff", b""):
        assert client.post("/v1/query/execute", content=content).status_code == 400
