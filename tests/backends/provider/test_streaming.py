"""Answers heard token by token, held against a real HTTP server on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from benchmarks.standin.errors import Refused
from benchmarks.standin.http import Json, Response
from benchmarks.standin.server import Reply, Script, Silence, Stream, serving
from benchmarks.standin.wires.openai_chat import chunk, completion, streamed
from relquery.backends.provider.config import ProviderConfig
from relquery.backends.provider.server import Server
from relquery.backends.provider.streaming import StreamingClient
from relquery.errors import ModelError, SamplingWarning
from relquery.prompt import Answer, Finish, Reuse, Span

PROMPT = [Span("Is it?")]


@dataclass(frozen=True, slots=True)
class Told:
    """heard: how often first tokens were."""

    answers: list[Answer]
    heard: int
    asked: list[Json]
    backend: StreamingClient


def ask(answer: Script, prompts: Sequence[Span] = PROMPT, timeout: float = 5.0) -> Told:
    heard: list[None] = []

    async def talk(backend: StreamingClient) -> list[Answer]:
        async with backend:
            return [
                await backend.ask((span,), 5, "", lambda: heard.append(None)) for span in prompts
            ]

    with serving(answer) as server:
        config = ProviderConfig(server.url, "key", timeout=timeout, max_retries=0)
        backend = StreamingClient(Server("m", config))
        return Told(asyncio.run(talk(backend)), len(heard), server.asked, backend)


def test_a_stream_becomes_an_answer_with_its_tokens() -> None:
    told = ask(lambda body: Stream(streamed("Yes", ", it", " is.", cached_tokens=8)))
    assert told.answers == [Answer("Yes, it is.", Finish.STOP, None, 10, 8, 3)]
    assert told.heard == 1
    assert told.backend.tells_tokens
    assert told.backend.tells_cached
    assert told.asked == [
        {
            "model": "m",
            "messages": [{"role": "user", "content": "Is it?"}],
            "max_tokens": 5,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ]


def test_an_answer_cut_by_its_limit_is_no_failure_and_tokens_need_not_be_told() -> None:
    told = ask(lambda body: Stream(streamed("It", " may", finish="length")))
    assert (told.answers[0].finish, told.answers[0].error) == (Finish.LENGTH, None)
    assert not told.backend.tells_cached
    told = ask(lambda body: Stream([chunk(content="x"), chunk("stop")]))
    assert told.answers == [Answer("x", Finish.STOP)]
    assert not told.backend.tells_tokens


def test_a_first_token_is_text_and_not_the_name_of_a_role() -> None:
    for heard, events in (
        (0, [chunk(role="assistant", content="")]),
        (1, [chunk(role="assistant"), chunk(content="x"), chunk(content="y")]),
        (1, [chunk(reasoning_content="Hm")]),
        (1, [chunk(reasoning="Hm")]),
        (1, [chunk("length")]),
    ):
        stream = Stream([*events, Silence.HANG_UP])
        assert ask(lambda body, stream=stream: stream).heard == heard  # type: ignore[misc]


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (Refused(500, "out of memory"), "The server answered 500: out of memory."),
        (Response("no JSON", 502), "The server answered 502: no JSON."),
        (Silence.HANG_UP, "The connection failed"),
        (Stream([chunk(content="x"), Silence.HANG_UP]), "The connection failed"),
        (Stream([chunk(content="x")]), "No whole answer was streamed"),
        (Stream([{"error": {"message": "preempted"}}]), "The server broke off: preempted."),
        (Stream([chunk("content_filter")]), "content filter"),
        (Stream(["data: [1]\n\n"]), "not a chat completion: [1]"),
        (Stream([{"choices": [3]}]), "not a chat completion"),
        (Stream(["data: {\n\n"]), "The request failed"),
        (completion("not streamed"), "No whole answer was streamed"),
    ],
)
def test_a_request_that_fails_says_why(reply: Reply | Stream | Silence, message: str) -> None:
    (answer,) = ask(lambda body: reply).answers
    assert (answer.text, answer.finish) == (None, Finish.ERROR)
    assert answer.error is not None
    assert message in answer.error


def test_a_silent_server_is_given_up_and_what_no_provider_takes_is_not_sent() -> None:
    told = ask(lambda body: Silence.UNTIL_CLIENT_LEAVES, timeout=0.1)
    assert told.answers[0].error == "Nothing was heard for 0.1 seconds. Raise the timeout."
    told = ask(lambda body: Refused(500, ""), [Span("x", reuse=Reuse.INDEPENDENT)])
    assert "independent spans" in str(told.answers[0].error)
    assert told.asked == []


def test_what_a_server_refuses_is_left_out_from_then_on() -> None:
    def strict(body: Json) -> Reply | Stream:
        if "stream_options" in body:
            return Refused(400, "Unknown parameter: stream_options")
        if "max_tokens" in body:
            return Refused(422, "Use max_completion_tokens instead")
        return Stream(streamed("x"))

    told = ask(strict, [*PROMPT, *PROMPT])
    assert [answer.text for answer in told.answers] == ["x", "x"]
    assert len(told.asked) == 4
    assert told.asked[-1]["max_completion_tokens"] == 5


def test_a_server_that_refuses_temperature_0_is_measured_at_its_own() -> None:
    def strict(body: Json) -> Reply | Stream:
        if "temperature" in body:
            return Refused(400, "Unsupported.", "unsupported_value", "temperature")
        return Stream(streamed("x"))

    with pytest.warns(SamplingWarning, match="refuses temperature 0"):
        told = ask(strict, [*PROMPT, *PROMPT])
    assert [answer.text for answer in told.answers] == ["x", "x"]
    assert len(told.asked) == 3


def test_odd_usage_costs_no_answer() -> None:
    usages: list[object] = [[], "many", 3, {"prompt_tokens": "x", "prompt_tokens_details": [1]}]
    replies = iter([Stream([chunk(content="x"), chunk("stop"), {"usage": odd}]) for odd in usages])
    told = ask(lambda body: next(replies), PROMPT * len(usages))
    assert told.answers == [Answer("x", Finish.STOP)] * len(usages)
    assert not told.backend.tells_cached


def test_what_was_streamed_is_read_as_a_reply_is() -> None:
    thought = chunk(content="<think>Hm.")
    cases = [
        ([thought, chunk(content="</think>\nx"), chunk("eos")], "x", Finish.STOP),
        ([thought, chunk("length")], "<think>Hm.", Finish.LENGTH),
        ([chunk(reasoning="Hm."), chunk("stop")], None, Finish.ERROR),
        ([chunk(content="x"), chunk("tool_calls")], None, Finish.ERROR),
    ]
    replies = iter([Stream(events) for events, _, _ in cases])
    told = ask(lambda body: next(replies), PROMPT * len(cases))
    found = [(answer.text, answer.finish) for answer in told.answers]
    assert found == [(text, finish) for _, text, finish in cases]


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (401, None, "rejects the API key"),
        (404, None, "does not serve the model 'm'"),
        (429, "insufficient_quota", "no quota left"),
    ],
)
def test_what_fails_for_all_alike_ends_the_work(status: int, code: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        ask(lambda body: Refused(status, "no", code))


def test_once_one_was_answered_a_refusal_is_of_one_request() -> None:
    replies: list[Stream | Reply] = [Stream(streamed("x")), Refused(403, "not this one")]
    told = ask(lambda body: replies.pop(0), [*PROMPT, *PROMPT])
    assert told.answers[1].error == "The server answered 403: not this one."
