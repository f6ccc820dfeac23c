"""Servers that refuse a setting, one request, or all: what is left out, and when a query stops."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.standin.errors import Refused
from benchmarks.standin.http import Json, Response
from benchmarks.standin.server import Reply, Script, Scripted, Silence, question, until
from benchmarks.standin.wires.openai_chat import completion
from relquery.backends.provider.backend import ProviderBackend
from relquery.backends.provider.config import ProviderConfig
from relquery.connection import connect
from relquery.errors import ModelError, SamplingWarning
from relquery.prompt import Answer, Sampling, Span
from tests.backends.conftest import Serve
from tests.ledger.stored import stored

LABELS = Sampling(labels=("Yes", "No"), max_tokens=1)


def backend(server: Scripted, **settings: Any) -> ProviderBackend:
    return ProviderBackend("m", ProviderConfig(base_url=server.url, **settings))


def ask(
    asked: ProviderBackend, texts: Sequence[str], sampling: Sampling | None = None
) -> list[Answer]:
    answers = dict(asked.answer([(Span(text),) for text in texts], sampling or Sampling()))
    return [answers[index] for index in range(len(texts))]


def echo(body: Json) -> Reply:
    return completion(question(body))


def refusing(name: str, message: str, code: str | None, param: str | None) -> Script:
    return lambda body: Refused(400, message, code, param) if name in body else echo(body)


UNSUPPORTED = ("Unsupported parameter.", "unsupported_parameter")
VALUE = ("Unsupported value: it does not support that with this model.", "unsupported_value")
UNKNOWN = ("Unrecognized request argument supplied: '{name}'", None)
SETTINGS = [
    ("temperature", Sampling(), VALUE),
    ("seed", Sampling(seed=3), UNSUPPORTED),
    ("top_p", Sampling(temperature=0.5), UNKNOWN),
    ("stop", Sampling(stop=("#", "B")), VALUE),
    ("max_tokens", Sampling(), UNKNOWN),
    ("response_format", LABELS, UNSUPPORTED),
]


@pytest.mark.filterwarnings("ignore::relquery.errors.SamplingWarning")
@pytest.mark.parametrize(("name", "sampling", "words"), SETTINGS)
def test_what_a_server_refuses_is_learnt_once_for_all_rows_and_calls(
    serve: Serve, name: str, sampling: Sampling, words: tuple[str, str | None]
) -> None:
    told = "max_completion_tokens" if name == "max_tokens" else name
    message, code = words
    server = serve(refusing(name, message.format(name=told), code, name if code else None))
    asked = backend(server, max_concurrency=1)
    for rows in (["Yes", "No", "Yes"], ["No"]):
        assert {answer.attempts for answer in ask(asked, rows, sampling)[1:]} <= {1}
    assert [name in body for body in server.asked] == [True, *[False] * 4]
    assert server.asked[0].keys() - server.asked[1].keys() == {name}
    if name == "max_tokens":
        assert server.asked[1]["max_completion_tokens"] == 256


def test_answers_without_a_temperature_warn_and_are_kept(serve: Serve, tmp_path: Path) -> None:
    message = "Unsupported value: 'temperature' does not support 0.0 with this model."
    server = serve(refusing("temperature", message, "unsupported_value", "temperature"))
    query = "SELECT LLM('up', id) AS up FROM range(40) t(id)"
    with connect(backend(server), ledger=tmp_path / "answers.db") as con:
        with pytest.warns(SamplingWarning, match="refuses temperature 0, .* may differ") as warned:
            first = con.sql(query).report
        assert warned[0].filename == __file__
    with connect(backend(server), ledger=tmp_path / "answers.db") as con:
        second = con.sql(query).report
    assert [(each.calls, each.errors) for each in (first, second)] == [(40, 0), (0, 0)]
    assert len(server.asked) <= 40 + 16


@pytest.mark.filterwarnings("ignore::relquery.errors.SamplingWarning")
def test_one_refusal_shows_that_a_server_has_the_model_whose_name_it_has(serve: Serve) -> None:
    def reasoning(body: Json) -> Reply:
        refused = [name for name in ("max_tokens", "temperature") if name in body]
        return Refused(400, "Unsupported.", UNSUPPORTED[1], refused[0]) if refused else echo(body)

    server = serve(reasoning)
    for model, refusals in (("gpt-5-mini", 1), ("some-model", 2)):
        before = len(server.asked)
        asked = ProviderBackend(model, ProviderConfig(base_url=server.url, max_concurrency=1))
        assert [answer.error for answer in ask(asked, ["a"] * 5)] == [None] * 5
        assert len(server.asked) - before == 5 + refusals


ASKED = [
    ("temperature", Sampling(temperature=0.7)),
    ("temperature", Sampling(temperature=0.7, seed=1)),
    ("top_k", Sampling(top_k=4)),
    ("top_p", Sampling(temperature=1.0, top_p=0.5)),
]


@pytest.mark.parametrize(("name", "sampling"), ASKED)
def test_a_setting_that_is_given_is_not_left(serve: Serve, name: str, sampling: Sampling) -> None:
    server = serve(refusing(name, f"Unsupported: {name}", "unsupported_parameter", name))
    with pytest.raises(ModelError, match=f"all failed alike.* Leave {name} out"):
        ask(backend(server, max_concurrency=4), ["x"] * 40, sampling)
    assert len(server.asked) == 5


@pytest.mark.filterwarnings("ignore::relquery.errors.SamplingWarning")
def test_what_was_learnt_of_greedy_requests_does_not_change_sampled_ones(serve: Serve) -> None:
    zero = Refused(400, "Only above 0.", "unsupported_value", "temperature")
    server = serve(lambda body: zero if body.get("temperature") == 0 else echo(body))
    asked = backend(server)
    for sampling in (Sampling(), Sampling(temperature=0.7)):
        ask(asked, ["a"], sampling)
    assert [body.get("temperature") for body in server.asked] == [0.0, None, 0.7]


def test_a_word_in_a_rows_own_error_teaches_nothing(serve: Serve) -> None:
    def strict(body: Json) -> Reply:
        hot = question(body).endswith("hot")
        return Refused(400, "Bad text: 'the temperature is hot'") if hot else echo(body)

    server = serve(strict)
    answers = ask(backend(server, max_concurrency=1), ["a", "hot", "b"])
    assert [answer.text for answer in answers] == ["a", None, "b"]
    assert "temperature" in server.asked[-1]


def test_a_refusal_is_its_rows_own_where_others_are_answered(serve: Serve) -> None:
    statuses = ["400", "403", "404", "413", "422"]

    def refuse(body: Json) -> Reply:
        status = question(body)
        return Refused(int(status), "not this one") if status in statuses else echo(body)

    answers = ask(backend(serve(refuse)), ["good", *statuses, *statuses, "fine"])
    assert (answers[0].text, answers[-1].text) == ("good", "fine")
    for answer, status in zip(answers[1:-1], statuses * 2, strict=True):
        assert answer.text is None
        assert status in str(answer.error)


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (Refused(400, "No grammar here."), "first 16 .* failed alike.*No grammar here"),
        (Refused(500, "kaput", x_should_retry="false"), "failed alike.*500: kaput"),
        (Response("<html>Welcome"), "not a chat completion: <html>Welcome Check base_url"),
        (Response({"error": {"message": "busy"}}), "not a chat completion.*busy"),
        (Silence.HANG_UP, "failed alike.*connection failed"),
    ],
)
def test_all_alike_stop_the_query(serve: Serve, reply: Reply | Silence, message: str) -> None:
    server = serve(lambda body: reply)
    with pytest.raises(ModelError, match=message):
        ask(backend(server, max_retries=0), ["x"] * 100)
    assert len(server.asked) == 16


def fault(number: int, text: str) -> Reply:
    """What a server on FastAPI says of a request that it cannot read: with what was sent."""
    fields = {"type": "missing", "loc": ["body", "x"], "msg": "Field required"}
    return Response({"detail": [fields | {"input": {"content": text}}]}, 422)


def test_failures_are_alike_whatever_of_its_own_a_request_has(serve: Serve) -> None:
    replies: list[Callable[[int, str], Reply]] = [
        lambda number, text: Refused(400, f"Failed (request req-{10**9 + number}a)"),
        lambda number, text: Refused(400, f"Row {number} of {number % 7 + 1} is bad."),
        lambda number, text: Refused(400, f"No grammar for '{text}' (line {number})."),
        lambda number, text: Refused(500, f'Kaput at "{text}"', x_should_retry="false"),
        fault,
    ]
    for reply in replies:
        numbers = itertools.count()
        server = serve(lambda body, reply=reply: reply(next(numbers), question(body)))  # type: ignore[misc]  # noqa: B023
        with pytest.raises(ModelError, match="failed alike"):
            ask(backend(server), [f"x{'y' * (number % 5)}" for number in range(100)])
        assert len(server.asked) == 16


def test_a_server_s_list_of_faults_is_told_in_words(serve: Serve) -> None:
    server = serve(lambda body: fault(0, "x") if question(body) == "x" else echo(body))
    (bad, good) = ask(backend(server), ["x", "y"])
    assert bad.error == "The server answered 422: Field required at ['body', 'x']."
    assert good.text == "y"


def test_prompts_that_a_server_cannot_take_are_their_rows_errors_however_many(serve: Serve) -> None:
    for reply in (
        Refused(400, "This model's maximum context length is 4096 tokens."),
        Refused(400, "Try again.", "context_length_exceeded"),
        Refused(400, "The response was filtered.", "content_filter"),
        Refused(413, "Payload Too Large"),
    ):
        server = serve(lambda body, reply=reply: echo(body) if "z" in question(body) else reply)  # type: ignore[misc]
        answers = ask(backend(server), [*["x"] * 30, "z"])
        assert [answer.text for answer in answers] == [*[None] * 30, "z"]


def test_a_server_that_goes_away_stops_the_query(serve: Serve, tmp_path: Path) -> None:
    busy = Refused(503, "unloading", x_should_retry="false")
    seen: list[None] = []

    def leave_after_ten(body: Json) -> Reply:
        seen.append(None)
        return echo(body) if len(seen) <= 10 else busy

    server = serve(leave_after_ten)
    with connect(backend(server, max_concurrency=4), ledger=tmp_path / "answers.db") as con:
        with pytest.raises(ModelError, match=r"last 5 requests to .* failed.*503: unloading"):
            con.sql("SELECT LLM('up', id) AS up FROM range(100) t(id)")
        assert con.ledger is not None
        assert con.ledger.stored == 10
    assert len(server.asked) < 25


def test_answers_that_came_are_kept_though_nobody_takes_them(serve: Serve, tmp_path: Path) -> None:
    """The one who asks is busy with the first when the others come, and then gives up."""
    all_there = threading.Barrier(6)

    def at_once(body: Json) -> Reply:
        all_there.wait(30)
        return echo(body)

    path = tmp_path / "answers.db"

    def give_up(stage: str, done: int, total: int) -> None:
        if done:
            until(lambda: stored(path) == 6)
            raise RuntimeError("no more")

    server = serve(at_once)
    with connect(backend(server), ledger=path) as con, pytest.raises(RuntimeError, match="no more"):
        con.sql("SELECT LLM('up', id) AS up FROM range(6) t(id)", progress=give_up)
