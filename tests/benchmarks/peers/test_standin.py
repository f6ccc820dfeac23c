"""The stand-in answers by question and row alone, and counts what it is asked."""

from __future__ import annotations

import json
import socket
import urllib.request
from typing import Any

import pytest

from benchmarks.peers import model
from benchmarks.peers.model import Texts, bare
from benchmarks.peers.programs import questions
from benchmarks.peers.provider import TableProvider, Trouble, ends_badly
from benchmarks.peers.tasks import QUESTIONS
from benchmarks.standin.errors import Refused
from benchmarks.standin.server import Reply, started

QUOTED = 'He says "no" to\nall of it.'
ROWS = [
    {"id": "0", "reviewcontent": QUOTED, "movietitle": "Up", "movieinfo": "A house flies."},
    {"id": "1", "reviewcontent": "funny", "movietitle": "Ice", "movieinfo": "It is cold."},
    {"id": "2", "reviewcontent": "Not funny at all.", "movietitle": "Up", "movieinfo": "A house."},
]


def provider(kind: str = "map", trouble: Trouble = Trouble.NONE, rows: Any = ROWS) -> TableProvider:
    return TableProvider(kind, QUESTIONS[kind], rows, "reviewcontent", trouble)


def body(text: str, schema: Any = None, **settings: Any) -> dict[str, Any]:
    asked = {"messages": [{"role": "user", "content": text}], **settings}
    if schema is not None:
        asked["response_format"] = {"type": "json_schema", "json_schema": {"schema": schema}}
    return asked


def said(reply: Reply) -> Any:
    assert isinstance(reply, dict)
    return reply["choices"][0]["message"]["content"]


MAP = questions.plain(questions.MAP)
RIGHT = model.sentence(questions.MAP, QUOTED)


@pytest.mark.parametrize(
    "prompt",
    [
        f"{MAP}\n{QUOTED}",
        f"Context:\n[Reviewcontent]: «{QUOTED}»\n\nInstruction: {MAP}",
        f"{MAP.replace('reviewcontent', chr(34) + 'reviewcontent' + chr(34))}\n"
        f'{{\n"reviewcontent": {json.dumps(QUOTED)}\n}}',
    ],
    ids=["plain", "context first", "JSON"],
)
def test_an_answer_is_the_same_in_every_layout_of_the_prompt(prompt: str) -> None:
    assert said(provider().answer_to(body(prompt))) == RIGHT


def test_content_in_parts_is_read_as_text() -> None:
    asked = body("")
    asked["messages"][0]["content"] = [{"type": "text", "text": f"{MAP}\n{QUOTED}"}]
    assert said(provider().answer_to(asked)) == RIGHT


def test_a_text_inside_another_is_not_found_in_its_place() -> None:
    texts = Texts(row["reviewcontent"] for row in ROWS)
    assert texts.found(bare("say: Not funny at all.")) == ["notfunnyatall"]
    assert texts.found(bare("say: funny! Not funny at all.")) == ["funny", "notfunnyatall"]


@pytest.mark.parametrize(
    ("schema", "rule", "answers"),
    [
        ({"properties": {"ok": {"type": "boolean"}}}, "", ['{"ok": true}', '{"ok": false}']),
        ({"properties": {"a": {"enum": ["Yes", "No"]}}}, "", ['{"a": "Yes"}', '{"a": "No"}']),
        (None, "The answer should be either True or False.", ["Answer: True", "Answer: False"]),
        (None, "", ["Yes", "No"]),
    ],
    ids=["boolean", "labels", "true or false", "text"],
)
def test_a_verdict_has_the_form_that_is_asked_for(
    schema: Any, rule: str, answers: list[str]
) -> None:
    row = ROWS[0]
    prompt = f"{rule} {questions.plain(questions.FILTER)} {row['movietitle']} {QUOTED}"
    expected = answers[0 if model.recommends(QUOTED) else 1]
    assert said(provider("filter").answer_to(body(prompt, schema))) == expected


def test_a_prompt_without_a_field_of_the_question_has_a_wrong_answer() -> None:
    prompt = f"{questions.plain(questions.FILTER)} {QUOTED}"
    assert (
        said(provider("filter").answer_to(body(prompt))) == "There is no movietitle in the prompt."
    )


def test_a_summary_counts_each_text_once_in_any_order() -> None:
    texts = [row["reviewcontent"] for row in ROWS]
    there, back = (
        said(provider("groups").answer_to(body("\n".join(each))))
        for each in (texts, [*reversed(texts), texts[0]])
    )
    assert there == back == model.summary(texts)
    assert there != model.summary(texts[1:])


def test_a_request_that_was_answered_before_is_repeated_and_billed_again() -> None:
    asked = provider()
    for _ in range(3):
        asked.answer_to(body(f"{MAP}\n{QUOTED}"))
    assert (asked.counts.requests, asked.counts.repeated) == (3, 2)
    assert asked.counts.prompts == [f"{MAP}\n{QUOTED}"] * 3
    before = asked.restart()
    assert (before.requests, asked.counts.requests) == (3, 0)


def test_the_schema_of_an_answer_is_billed() -> None:
    asked = provider("classify")
    asked.answer_to(body(QUOTED, {"properties": {"mood": {}}}))
    assert asked.counts.prompts == [QUOTED + '\n{"properties": {"mood": {}}}']


REVIEWS = [{**ROWS[0], "id": str(at), "reviewcontent": f"review {at} of all"} for at in range(400)]


def test_one_call_in_ten_fails_and_is_answered_when_tried_again() -> None:
    asked = provider(trouble=Trouble.CALLS, rows=REVIEWS)
    failed: list[Refused] = []
    for row in REVIEWS:
        for _ in range(6):
            reply = asked.answer_to(body(f"{MAP}\n{row['reviewcontent']}"))
            if not isinstance(reply, Refused):
                break
            failed.append(reply)
        assert said(reply) == model.sentence(questions.MAP, row["reviewcontent"])
    assert 0.07 < len(failed) / asked.counts.requests < 0.13
    assert {(each.status, *each.headers.items()) for each in failed} == {
        (500,), (429, ("Retry-After", "1"))
    }  # fmt: skip


def test_which_calls_fail_does_not_depend_on_the_layout() -> None:
    def failing(layout: str) -> list[int]:
        asked = provider(trouble=Trouble.CALLS, rows=REVIEWS)
        texts = [layout.format(MAP, row["reviewcontent"]) for row in REVIEWS]
        replies = [asked.answer_to(body(text)) for text in texts]
        return [at for at, reply in enumerate(replies) if isinstance(reply, Refused)]

    assert failing("{}\n{}") == failing('[{1}]\n"{0}"') != []


def test_rows_end_badly_in_three_ways() -> None:
    asked = provider(trouble=Trouble.ROWS, rows=REVIEWS)
    ends = set[Any]()
    for row in REVIEWS:
        reply = asked.answer_to(body(f"{MAP}\n{row['reviewcontent']}"))
        bad = ends_badly(row["reviewcontent"])
        assert isinstance(reply, Refused) == isinstance(bad, Refused)
        if isinstance(reply, Refused):
            ends.add(reply.status)
        elif bad is not None:
            assert isinstance(reply, dict)
            ends.add(reply["choices"][0]["finish_reason"])
    assert ends == {400, "stop", "length"}


@pytest.mark.parametrize(
    ("settings", "param"),
    [
        ({"max_tokens": 9}, "max_tokens"),
        ({"temperature": 0, "max_completion_tokens": 9}, "temperature"),
        ({"temperature": 1, "max_completion_tokens": 9}, None),
        ({}, None),
    ],
)
def test_a_reasoning_model_names_the_setting_that_it_refuses(
    settings: dict[str, Any], param: str | None
) -> None:
    asked = provider(trouble=Trouble.REASONING)
    reply = asked.answer_to(body(f"{MAP}\n{QUOTED}", **settings))
    if param is None:
        assert said(reply) == RIGHT
    else:
        assert isinstance(reply, Refused)
        assert (reply.status, reply.param) == (400, param)
    assert asked.counts.failed == (param is not None)


def test_half_a_request_is_not_counted() -> None:
    asked = provider()
    data = json.dumps(body(f"{MAP}\n{QUOTED}")).encode()
    with started(asked) as standin:
        port = int(standin.address.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as half:
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}"
            half.sendall(head.encode() + b"\r\n\r\n" + data[:-1])
        whole = urllib.request.Request(f"{standin.url}/chat/completions", data)
        with urllib.request.urlopen(whole) as reply:
            assert json.load(reply)["choices"][0]["message"]["content"] == RIGHT
    assert asked.counts.requests == 1
