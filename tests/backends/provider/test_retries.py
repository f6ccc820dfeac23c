"""What is tried again, after how long, and what is no failed try."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

import relquery as rq
from benchmarks.providers.virtual import ask as ask_virtual
from benchmarks.providers.virtual import refusal, says
from benchmarks.standin.errors import Refused
from benchmarks.standin.http import Json, Response
from benchmarks.standin.server import Reply, Scripted, question
from benchmarks.standin.wires.openai_chat import completion
from relquery.backends.provider.backend import ProviderBackend
from relquery.backends.provider.config import ProviderConfig
from relquery.backends.wires.errors import status_error
from relquery.backends.wires.reply import Reply as Said
from relquery.errors import ModelError
from relquery.prompt import Answer, Sampling, Span
from tests.backends.conftest import Serve

SOON = {"retry-after-ms": "10"}


def backend(server: Scripted, **settings: Any) -> ProviderBackend:
    return ProviderBackend("m", ProviderConfig(base_url=server.url, api_key="k", **settings))


def ask(server: Scripted, sampling: Sampling | None = None, **settings: Any) -> Answer:
    ((_, answer),) = backend(server, **settings).answer([(Span("a"),)], sampling or Sampling())
    return answer


DETAILS = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "13.5s"}]
WAITS: list[tuple[Any, float | None]] = [
    ([{"error": {"code": 429, "message": "Quota exceeded.", "details": DETAILS}}], 13.5),
    ({"error": {"message": "Rate limit reached. Please try again in 3s. See docs."}}, 3),
    ({"message": "Limit 30000, used 29000. Please try again in 1m2.5s."}, 62.5),
    ({"message": "Please try again in 250ms."}, 0.25),
    ({"message": "Please retry after 20 seconds."}, 20),
    ({"message": "You must wait 2 minutes."}, 120),
    ({"error": {"message": "slow down", "retry_after": 1.5}}, 1.5),
    ("Too busy: retry in 4 s", 4),
    ({"message": "Try again later, in 2026."}, None),
    ({"message": "The word limit is 5s."}, None),
    ({"retry_after": True}, None),
]


def test_a_wait_is_found_in_the_body_of_an_error() -> None:
    for body, seconds in WAITS:
        assert status_error(429, body).wait == seconds, body
    assert status_error(429, WAITS[0][0], {"retry-after": "2"}).wait == 2, "headers come first"
    assert status_error(429, WAITS[0][0]).words == "The server answered 429: Quota exceeded."


@pytest.mark.parametrize(
    "refused",
    [
        Response({"error": {"message": "Please try again in 0.3s.", "type": "tokens"}}, 429),
        Refused(429, "slow down", Retry_After="0.3"),
    ],
    ids=["body", "header"],
)
def test_a_wait_that_the_server_names_is_kept_to(serve: Serve, refused: Reply) -> None:
    times: list[float] = []

    def busy_once(body: Json) -> Reply:
        times.append(time.perf_counter())
        return refused if len(times) == 1 else completion("yes")

    answer = ask(serve(busy_once), max_retries=0)
    assert (answer.text, answer.attempts) == ("yes", 2)
    assert 0.3 <= times[1] - times[0] < 0.5


def test_a_refusal_by_a_limit_is_no_failed_try() -> None:
    refused = dict.fromkeys(map(str, range(30)), 9)

    async def busy(question: str) -> Said:
        if refused[question]:
            refused[question] -= 1
            raise refusal(429, retry_after="1")
        return says(question)

    outcome = ask_virtual(busy, 30, max_retries=0)
    assert outcome.texts == [str(number) for number in range(30)]
    assert len(outcome.client.asked) == 300


NO_ANSWERS: list[Reply] = [
    *(Refused(status, "a moment", retry_after_ms="10") for status in (408, 409, 500, 503)),
    Response("<html>Bad gateway", headers=SOON),
    Response('{"choices": [{"mess', headers=SOON),
    Response({"error": {"message": "busy"}}, headers=SOON),
    Response({"choices": []}, headers=SOON),
    Response(json.dumps(completion("caf#")).replace("#", "\udce9"), headers=SOON),  # not UTF-8
]


def test_what_may_pass_is_asked_for_again(serve: Serve) -> None:
    for reply in NO_ANSWERS:
        replies = iter([reply] * 2)
        server = serve(lambda asked, replies=replies: next(replies, completion("yes")))  # type: ignore[misc]
        answer = ask(server)
        assert (answer.text, answer.attempts) == ("yes", 3), reply


async def slowly() -> AsyncIterator[str]:
    """A reply that comes after two seconds, with blanks before it."""
    for _ in range(40):
        yield " "
        await asyncio.sleep(0.05)
    yield json.dumps(completion("late"))


def test_a_request_is_given_up_after_its_timeout_however_slowly_it_is_answered(
    serve: Serve,
) -> None:
    replies = iter([Response(events=slowly())])
    server = serve(lambda body: next(replies, completion("yes")))
    assert ask(server, timeout=0.3).text == "yes"
    assert len(server.asked) == 2


def test_an_error_in_place_of_a_reply_has_the_status_that_it_names(serve: Serve) -> None:
    said = {"error": {"code": 400, "message": "This prompt was flagged."}}
    server = serve(lambda body: Response(said))
    assert ask(server).error == "The server answered 400: This prompt was flagged."
    assert len(server.asked) == 1


def test_no_text_is_an_error_unless_it_may_be(serve: Serve) -> None:
    server = serve(lambda body: completion(""))
    answers = list(backend(server).answer([(Span("a"),)] * 3, Sampling()))
    assert {str(answer.error)[:28] for _, answer in answers} == {"The server's answer is empty"}
    assert ask(server, allow_empty=True) == ask(server, Sampling(stop=("#",)))
    assert ask(server, allow_empty=True).text == ""


def test_a_server_that_reads_a_part_of_a_prompt_is_told_of_once(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(lambda body: completion("yes", prompt_tokens=2_050))
    whole = backend(server)
    with caplog.at_level(logging.WARNING, "relquery"):
        list(whole.answer([(Span("a word " * 1_000),)] * 2, Sampling()))
        assert caplog.messages == []
        list(whole.answer([(Span("sentences " * 8_000),)] * 2, Sampling()))
    assert len(caplog.messages) == 1
    assert "read 2,050 tokens of a prompt of 8,000 words" in caplog.messages[0]
    assert "num_ctx" in caplog.messages[0]


ASKED = "SELECT LLM('How many?', x, output := 'INTEGER', retry := true) AS n FROM range(60) t(x)"


@pytest.mark.filterwarnings("ignore::relquery.errors.PartialResultWarning")
def test_a_second_try_that_was_asked_for_goes_before_the_end_of_all(serve: Serve) -> None:
    def at_second(body: Json) -> Reply:
        is_second = "Answer again" in question(body)
        return completion(json.dumps({"answer": 7}) if is_second else "Well, seven.")

    server = serve(at_second)
    with rq.connect(backend(server)) as con:
        rows = con.sql(ASKED)
        assert [row for (row,) in rows] == [7] * 60
        assert rows.report.calls == 120
    assert len(server.asked) == 120

    with rq.connect(backend(server), on_error="raise") as con:
        assert len(list(con.sql(ASKED))) == 60

    server = serve(lambda body: completion("Well, seven."))
    with rq.connect(backend(server)) as con, pytest.raises(ModelError, match="is not JSON"):
        con.sql(ASKED)
    assert len(server.asked) <= 2 * (20 + 16)
