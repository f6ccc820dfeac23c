"""A provider as a backend, held against a real HTTP server on this machine."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from benchmarks.standin.errors import Refused
from benchmarks.standin.http import Json
from benchmarks.standin.server import (
    Reply,
    Script,
    Scripted,
    Silence,
    question,
    until,
)
from benchmarks.standin.wires.openai_chat import completion
from relquery.backends.load import load
from relquery.backends.provider.backend import ProviderBackend
from relquery.backends.provider.client import ProviderClient, http_error
from relquery.backends.provider.config import ProviderConfig
from relquery.connection import connect
from relquery.errors import ConfigError, ModelError
from relquery.prompt import Answer, Finish, Nest, Prompt, Reuse, Role, Sampling, Span
from tests.backends.conftest import Serve
from tests.cases import cases

# As where the `local` extra is not installed.
BASE_INSTALL = "import sys; sys.modules.update(dict.fromkeys(('torch', 'transformers'), None))"
COMMAND = [sys.executable, "-c", f"{BASE_INSTALL}; from relquery.cli import main; main()"]
LABELS = Sampling(labels=("Yes", "No"), max_tokens=1)


def backend(server: Scripted, model: str = "m", **settings: Any) -> ProviderBackend:
    return ProviderBackend(model, ProviderConfig(base_url=server.url, **settings))


def prompt(text: str) -> Prompt:
    return Span("Be brief.", Role.SYSTEM), Span("Question: "), Span(text)


def ask(
    asked: ProviderBackend, texts: Sequence[str], sampling: Sampling | None = None
) -> list[Answer]:
    pairs = list(asked.answer([prompt(text) for text in texts], sampling or Sampling()))
    assert sorted(index for index, _ in pairs) == list(range(len(texts)))
    return [answer for _, answer in sorted(pairs, key=lambda pair: pair[0])]


def echo(body: Json) -> Reply:
    return completion(question(body).removeprefix("Question: ").upper())


def row_of(body: Json) -> int:
    return int(question(body).split()[-1])


def asks_for_json(body: Json) -> bool:
    return "response_format" in body


def test_answers_find_their_prompts_whatever_the_order_they_come_in(serve: Serve) -> None:
    def slow_when_even(body: Json) -> Reply:
        if int(question(body)[-1]) % 2 == 0:
            time.sleep(0.1)
        return echo(body)

    server = serve(slow_when_even)
    pairs = list(backend(server).answer([prompt(f"r{n}") for n in range(10)], Sampling()))
    assert [index for index, _ in pairs] != list(range(10))
    assert {index: answer.text for index, answer in pairs} == {n: f"R{n}" for n in range(10)}


def test_a_prompt_that_messages_cannot_carry_is_not_sent(serve: Serve) -> None:
    server = serve(echo)
    cases = [
        (Span("x", reuse=Reuse.INDEPENDENT), "independent"),
        (Span("x", position=4), "positions"),
        (Span((1, 2)), "token ids"),
        (Span(Nest((Span("x"),)), reuse=Reuse.INDEPENDENT), "independent"),
        (Span("\ud800"), "Unicode"),
    ]
    prompts = [*((span,) for span, _ in cases), prompt("fine")]
    answers = dict(backend(server).answer(prompts, Sampling()))
    for at, (_, error) in enumerate(cases):
        assert error in str(answers[at].error)
    assert answers[len(cases)].text == "FINE"
    assert len(server.asked) == 1


def test_closing_the_iterator_cancels_what_is_open_at_once(serve: Serve) -> None:
    def hold_all_but_one(body: Json) -> Reply | Silence:
        return echo(body) if question(body).endswith("r0") else Silence.UNTIL_CLIENT_LEAVES

    server = serve(hold_all_but_one)
    asked = backend(server, max_concurrency=3)
    before = threading.active_count()
    with closing(asked.answer([prompt(f"r{n}") for n in range(50)], Sampling())) as answers:
        assert next(answers)[1].text == "R0"
        until(lambda: server.under_way == 3)
        start = time.perf_counter()
    assert time.perf_counter() - start < 2
    until(lambda: server.hung_up == 3)
    assert len(server.asked) == 4
    until(lambda: threading.active_count() <= before + 1)


def test_connections_close_to_the_end_though_the_reader_has_gone(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    close, closed = ProviderClient.aclose, threading.Event()

    async def slowly(wire: ProviderClient) -> None:
        await asyncio.sleep(0.05)
        await close(wire)
        closed.set()

    monkeypatch.setattr(ProviderClient, "aclose", slowly)
    with closing(backend(serve(echo)).answer([prompt("r")], Sampling())) as answers:
        next(answers)
    assert closed.is_set()


KAPUT = Refused(500, "kaput", retry_after_ms="10")


@pytest.mark.parametrize(
    ("fault", "settings", "attempts", "error"),
    [
        (KAPUT, {"max_retries": 2}, 3, "The server answered 500: kaput. (3 attempts)"),
        (Silence.HANG_UP, {"max_retries": 1}, 2, "connection failed"),
        (Silence.UNTIL_CLIENT_LEAVES, {"timeout": 0.3, "max_retries": 0}, 1, "within 0.3 seconds"),
    ],
)
def test_a_lasting_fault_is_its_rows_own_error(
    serve: Serve, fault: Reply | Silence, settings: dict[str, Any], attempts: int, error: str
) -> None:
    server = serve(lambda body: fault if question(body).endswith("b") else echo(body))
    a, b, c = ask(backend(server, **settings), ["a", "b", "c"])
    assert (a.text, c.text) == ("A", "C")
    assert (b.text, b.finish, b.attempts) == (None, Finish.ERROR, attempts)
    assert error in str(b.error)


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (Refused(401, "Incorrect API key"), "Incorrect API key. Set OPENAI_API_KEY"),
        (Refused(403, "not yours"), "does not serve the model 'm'.*not yours"),
        (Refused(404, "no such model"), "no such model. Check the model's name"),
        (Refused(429, "You are broke", "insufficient_quota"), "no quota left.*You are broke"),
        (Refused(402, "Pay first"), "no quota left.*Pay first"),
        (Refused(400, "Your credit balance is too low to ask."), "no quota left.*too low"),
    ],
)
def test_what_all_would_meet_stops_the_query(serve: Serve, reply: Reply, message: str) -> None:
    server = serve(lambda body: reply)
    with pytest.raises(ModelError, match=message):
        ask(backend(server, max_concurrency=2, max_retries=0), ["x"] * 100)
    assert len(server.asked) <= 10


def test_a_slip_in_a_models_name_is_told_with_the_name_that_was_meant(serve: Serve) -> None:
    server = serve(lambda body: Refused(404, "no such model"))
    for name, hint in (("gpt-5-mimi", r" Did you mean 'gpt-5-mini'\?"), ("my-own", "")):
        asked = ProviderBackend(name, ProviderConfig(base_url=server.url, api_key="k"))
        with pytest.raises(ModelError, match=rf"no such model\.{hint} Check the model's name"):
            ask(asked, ["x"])


def test_a_server_that_is_not_there_stops_the_query() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = ProviderConfig(base_url=f"http://127.0.0.1:{port}/v1", max_retries=0)
    with pytest.raises(ModelError, match=f"127.0.0.1:{port}/v1/ cannot be reached"):
        ask(ProviderBackend("m", config), ["a", "b"])


def test_a_failure_without_words_is_called_by_its_name() -> None:
    failed = http_error(httpx2.ReadError(""), 1.0)
    assert (failed.kind, failed.words) == ("lost", "The connection failed: ReadError.")


TOLD = Sampling(labels=("Yes", "No"), max_tokens=1, told=True)


def label_or(text: str, strange: set[str]) -> Script:
    """Answers `text` to some rows, and the label of the schema if there is one."""

    def answer(body: Json) -> Reply:
        if asks_for_json(body):
            return completion('{"answer": "No"}')
        return completion(text if question(body).removeprefix("Question: ") in strange else "Yes")

    return answer


@pytest.mark.parametrize("text", ["Yes, it is.", "Maybe", ""])
def test_an_answer_that_is_no_label_is_asked_again_with_the_schema(serve: Serve, text: str) -> None:
    server = serve(label_or(text, {"b"}))
    a, b, c = ask(backend(server, max_concurrency=1), ["a", "b", "c"], TOLD)
    assert [(one.text, one.attempts) for one in (a, b, c)] == [("Yes", 1), ("No", 2), ("Yes", 1)]
    assert [asks_for_json(body) for body in server.asked] == [False, False, True, False]
    assert (b.prompt_tokens, b.output_tokens) == (20, 4)  # of both


@pytest.mark.parametrize(
    ("rows", "strange", "in_words", "in_all"),
    [
        (40, range(40), 2, 42),  # where labels do not come, all further rows have the schema
        (100, range(9, 100, 10), 100, 110),  # a few rows do not make all dearer
    ],
)
def test_rows_whose_answers_are_no_labels_have_the_schema(
    serve: Serve, rows: int, strange: range, in_words: int, in_all: int
) -> None:
    server = serve(label_or("Well, yes.", set(map(str, strange))))
    asked = backend(server, max_concurrency=1)
    texts = [answer.text for answer in ask(asked, list(map(str, range(rows))), TOLD)]
    assert texts == ["No" if row in strange else "Yes" for row in range(rows)]
    assert sum(not asks_for_json(body) for body in server.asked) == in_words
    assert len(server.asked) == in_all
    if len(strange) == rows:  # which is remembered
        ask(asked, ["0"], TOLD)
        assert asks_for_json(server.asked[-1])


@pytest.mark.parametrize("at_once", [1, 16])
def test_labels_that_never_come_stop_the_query_after_20_calls(serve: Serve, at_once: int) -> None:
    server = serve(lambda body: completion('{"answer": "Maybe"}'))
    with pytest.raises(ModelError, match="is not one of the labels"):
        ask(backend(server, max_concurrency=at_once), list(map(str, range(80))), TOLD)
    assert len(server.asked) <= 20 + at_once


def test_a_refusal_is_not_asked_again(serve: Serve) -> None:
    server = serve(lambda body: completion(None, refusal="I cannot."))
    (answer,) = ask(backend(server), ["a"], TOLD)
    assert (answer.attempts, answer.text) == (1, None)


TWO = (Span("What is 2+2?"), Span("Answer in one word.", begins=True))


def test_messages_of_one_role_are_joined_only_where_roles_must_alternate(serve: Serve) -> None:
    server = serve(echo)
    list(backend(server, max_concurrency=1).answer([TWO, (Span("a"), Span("b"))], Sampling()))
    assert [[each["content"] for each in body["messages"]] for body in server.asked] == [
        ["What is 2+2?", "Answer in one word."],
        ["ab"],
    ]

    def strict(body: Json) -> Reply:
        if len(body["messages"]) > 1:
            return Refused(400, "Conversation roles must alternate user/assistant/user/...")
        return echo(body)

    server = serve(strict)
    one = backend(server, max_concurrency=1)
    answers = dict(one.answer([TWO, (Span("a\n"), Span("b", begins=True))], Sampling()))
    assert [answers[i].text for i in range(2)] == ["WHAT IS 2+2?\nANSWER IN ONE WORD.", "A\nB"]
    assert len(server.asked) == 3, "the server is asked once how it wants them"


def test_the_name_tells_servers_apart_and_a_key_is_not_shown() -> None:
    def name(url: str | None) -> str:
        return ProviderBackend("m", ProviderConfig(base_url=url)).name

    assert list(ProviderBackend("m").answer([], Sampling())) == [], "no prompts need no server"
    assert "hush" not in repr(ProviderConfig(api_key="hush"))
    assert name(None) == name("https://api.openai.com/v1/") == "openai:m"
    assert name("http://localhost:8000/v1") == "openai:m@localhost:8000"
    assert name("https://gate.example/team-a/v1") == "openai:m@gate.example/team-a"


def test_a_missing_key_is_an_error_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "of no use here")
    for key in ("", "two\nlines"):
        with pytest.raises(ModelError, match="Set the environment variable OPENAI_API_KEY"):
            load("openai:m", api_key=key)
    one = ProviderBackend("m")
    assert load("openai:m").name == one.name == "openai:m", "estimates need no key"
    for act in (one.check, lambda sampling: ask(one, ["a"], sampling)):
        with pytest.raises(ModelError, match="Set the environment variable OPENAI_API_KEY"):
            act(Sampling())


@pytest.mark.parametrize(("model", "options", "message"), cases(__file__, "settings"))
def test_a_wrong_setting_is_named(model: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(model, **options)


def test_what_a_provider_does_not_take_is_refused() -> None:
    one = ProviderBackend("m")
    with pytest.raises(ConfigError, match="at most 4"):
        ask(one, ["a"], Sampling(stop=tuple("abcde")))
    for count in (0, 5):
        for act in (one.check, lambda sampling: ask(one, ["a"], sampling)):
            with pytest.raises(ConfigError, match=f"logprobs is {count}; a provider does not"):
                act(Sampling(logprobs=count))


@pytest.mark.long
def test_the_package_of_the_provider_is_imported_for_its_models_alone() -> None:
    code = "import relquery.connection, relquery.backends.load, sys; print('httpx2' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"


def rate(body: Json) -> Reply:
    return completion(json.dumps({"answer": "Yes" if "good" in question(body) else "No"}))


def test_a_query_runs_and_the_ledger_knows_its_answers(serve: Serve, tmp_path: Path) -> None:
    server = serve(rate)
    query = "SELECT id, LLM('Liked?', text, labels := ['Yes', 'No']) AS liked FROM t ORDER BY id"
    given: dict[str, Any] = {"base_url": server.url, "api_key": "k", "ledger": tmp_path / "a.db"}
    for calls in (2, 0):
        with connect("openai:m", **given) as con:
            con.register("t", {"id": [1, 2, 3], "text": ["good", "bad", "good"]})
            result = con.sql(query)
        assert result.fetchall() == [(1, "Yes"), (2, "No"), (3, "Yes")]
        assert (result.report.calls, result.report.prompt_tokens) == (calls, 10 * calls)
    assert len(server.asked) == 2


@pytest.mark.long
def test_the_command_line_reads_the_server_from_the_environment_and_needs_no_torch(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(rate)
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    rows = tmp_path / "t.csv"
    rows.write_text("text\ngood\nbad\n", encoding="utf-8")
    query = "SELECT text, LLM('Liked?', text, labels := ['Yes', 'No']) AS liked FROM t"
    command = [*COMMAND, "sql", query, "-t", str(rows), "-m", "openai:m", "-f", "json"]
    document = json.loads(subprocess.check_output(command, text=True))
    assert {row["text"]: row["liked"] for row in document["rows"]} == {"good": "Yes", "bad": "No"}
    assert server.keys == {"from-environment"}
