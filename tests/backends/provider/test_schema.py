"""Answers of a provider under a schema: asked for in its own way, or in words, and read as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.standin.errors import Refused
from benchmarks.standin.http import Json
from benchmarks.standin.server import Reply, Scripted
from benchmarks.standin.wires.openai_chat import completion
from relquery.backends.provider.backend import ProviderBackend
from relquery.backends.provider.config import ProviderConfig
from relquery.backends.schemas import closed
from relquery.prompt import Answer, Finish, Role, Sampling, Span
from tests.backends.conftest import Serve
from tests.schemas import STRUCT

NUMBER = '{"type": "integer"}'


def ask(server: Scripted, *samplings: Sampling) -> list[Answer]:
    asked = ProviderBackend("m", ProviderConfig(base_url=server.url))
    prompt = (Span("Be brief.", Role.SYSTEM), Span("Row 1"))
    return [answer for sampling in samplings for _, answer in asked.answer([prompt], sampling)]


def schema_of(body: Json) -> Any:
    found = body["response_format"]
    assert found["type"] == "json_schema"
    assert found["json_schema"]["strict"] is True
    return found["json_schema"]["schema"]


def test_an_object_is_asked_for_as_it_is(serve: Serve) -> None:
    server = serve(lambda body: completion('{"name": "x"}'))
    (answer,) = ask(server, Sampling(schema=STRUCT, max_tokens=50))
    assert (answer.text, answer.finish) == ('{"name": "x"}', Finish.STOP)
    (body,) = server.asked
    assert schema_of(body) == closed(STRUCT)
    assert body["max_tokens"] == 50
    assert [message["content"] for message in body["messages"]] == ["Be brief.", "Row 1"]


def test_bounds_that_are_those_of_the_type_take_no_tokens(serve: Serve) -> None:
    far = {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1}
    near = far | {"maximum": 5}
    given = {"far": far, "near": near, "minimum": far, "list": {"type": "array", "items": far}}
    server = serve(lambda _: completion('{"far": 1, "near": 2, "minimum": 3, "list": []}'))
    ask(server, Sampling(schema=json.dumps({"type": "object", "properties": given})))
    plain = {"type": "integer"}
    less = {"far": plain, "near": plain | {"maximum": 5}, "minimum": plain}
    less["list"] = {"type": "array", "items": plain}
    assert schema_of(server.asked[0])["properties"] == less


def test_what_is_no_object_is_asked_for_in_one_and_taken_out_of_it_as_written(serve: Serve) -> None:
    big = "1" * 5_000 + ".50"
    server = serve(lambda body: completion(f' {{ "answer" : {big} }} '))
    (answer,) = ask(server, Sampling(schema='{"type": "number"}'))
    assert answer.text == big
    (body,) = server.asked
    assert schema_of(body)["properties"] == {"answer": {"type": "number"}}
    assert schema_of(body)["required"] == ["answer"]


def test_definitions_stay_where_references_find_them(serve: Serve) -> None:
    server = serve(lambda body: completion('{"answer": [1]}'))
    items = {"type": "array", "items": {"$ref": "#/$defs/n"}}
    (answer,) = ask(server, Sampling(schema=json.dumps(items | {"$defs": {"n": {"const": 1}}})))
    assert answer.text == "[1]"
    schema = schema_of(server.asked[0])
    assert schema["$defs"] == {"n": {"const": 1}}
    assert schema["properties"]["answer"] == items


def test_answers_are_read_also_as_servers_write_them_unasked(serve: Serve) -> None:
    for schema, said, text in (
        (NUMBER, "7", "7"),
        (NUMBER, "```json\n7\n```", "7"),
        (NUMBER, '<think>8?</think>{"answer": 7}', "7"),
        (STRUCT, '```\n{"answer": 1}\n```', '{"answer": 1}'),
    ):
        reply = completion(said)
        (answer,) = ask(serve(lambda body, reply=reply: reply), Sampling(schema=schema))  # type: ignore[misc]
        assert (answer.text, answer.error) == (text, None)


def test_an_answer_that_is_no_json_is_an_error_and_a_cut_one_stays_cut(serve: Serve) -> None:
    texts = ["seven", '{"answer": ', "{'answer': 7}", "NaN", "7 apples"]
    replies = iter(texts)
    server = serve(lambda body: completion(next(replies)))
    for answer, said in zip(ask(server, *[Sampling(schema=NUMBER)] * 5), texts, strict=True):
        assert (answer.text, answer.finish) == (said, Finish.ERROR)
        assert answer.error == f"The answer {said!r} is not JSON."
    server = serve(lambda body: completion('{"name": "x', "length"))
    (answer,) = ask(server, Sampling(schema=STRUCT))
    assert (answer.text, answer.finish) == ('{"name": "x', Finish.LENGTH)


@pytest.mark.parametrize(
    "refusal",
    [
        Refused(400, "No.", "unsupported_parameter", "response_format"),
        Refused(400, "Invalid schema for response_format 'answer': 'maxLength' is not permitted."),
    ],
)
def test_a_server_that_refuses_a_schema_gets_it_in_words(serve: Serve, refusal: Reply) -> None:
    server = serve(lambda body: refusal if "response_format" in body else completion("7"))
    answers = ask(server, *[Sampling(schema=NUMBER)] * 1)
    assert [answer.text for answer in answers] == ["7"]
    assert server.asked[-1]["messages"][0]["content"] == (
        "Be brief.\nAnswer with nothing but JSON that is valid under this JSON Schema: "
        '{"type": "integer"}'
    )


def test_a_server_that_refuses_one_schema_is_asked_for_others_and_labels(serve: Serve) -> None:
    def no_lengths(body: Json) -> Reply:
        if "maxLength" in json.dumps(body.get("response_format")):
            return Refused(400, "'maxLength' is not permitted.", None, "response_format")
        return completion('"Yes"' if "response_format" not in body else '{"answer": "Yes"}')

    server = serve(no_lengths)
    long, free = '{"type": "string", "maxLength": 3}', '{"type": "string"}'
    samplings = [Sampling(schema=long), Sampling(schema=free), Sampling(labels=("Yes", "No"))]
    answers = ask(server, *samplings, *samplings)
    assert [answer.text for answer in answers] == ['"Yes"', '"Yes"', "Yes"] * 2
    told = ["response_format" in body for body in server.asked]
    assert told == [True, False, True, True, False, True, True]


def test_a_server_that_refuses_formats_for_labels_is_not_asked_for_schemas(serve: Serve) -> None:
    refusal = Refused(400, "No.", "unsupported_parameter", "response_format")
    server = serve(lambda body: refusal if "response_format" in body else completion("7"))
    answers = ask(server, Sampling(labels=("7", "8")), Sampling(schema=NUMBER))
    assert [answer.text for answer in answers] == ["7", "7"]
    assert ["response_format" in body for body in server.asked] == [True, False, False]
