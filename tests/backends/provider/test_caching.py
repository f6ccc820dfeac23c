"""What OpenAI's APIs are told of their cache: keys of shared prefixes, and marks where they take
them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import relquery as rq
from benchmarks.standin.errors import Refused
from benchmarks.standin.http import Json, Response
from benchmarks.standin.provider import Provider
from benchmarks.standin.server import CHAT, RESPONSES, Reply, serving, started
from benchmarks.standin.wires.openai_chat import completion
from benchmarks.standin.wires.openai_responses import response
from relquery.backends.provider.backend import ProviderBackend
from relquery.backends.provider.config import ProviderConfig
from relquery.backends.provider.providers import ANTHROPIC, GEMINI, OPENAI
from relquery.backends.wires.messages import in_form, key_of, to_messages
from relquery.backends.wires.openai import OpenAIChat
from relquery.backends.wires.wire import CacheSettings
from relquery.prices.table import PRICES
from relquery.prompt import Role, Sampling, Span
from relquery.sql.caching import cache_plan

IGNORED = "ignore::relquery.errors.SamplingWarning"
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings(IGNORED)]
EXPLICIT = {"prompt_cache_breakpoint": {"mode": "explicit"}}
PROMPT = (
    Span("Be brief.", Role.SYSTEM),
    Span("common ", keep=1, keep_for=1800.0, shares=True),
    Span("own"),
)
ASKED = "SELECT LLM('Is it good?', films.*) AS good FROM films"


def films(titles: int = 2, reviews: int = 3) -> pa.Table:
    rows = range(titles * reviews)
    texts = [f"Film {at % titles} is about the sea. " * 200 for at in rows]
    return pa.table({"review": [f"Review {at} was short." for at in rows], "film": texts})


def ask(standin: Provider, model: str, rows: pa.Table, **config: Any) -> None:
    """Asks about each row; the stand-in's account tells what was read and written."""
    with (
        started(standin),
        rq.connect(model, base_url=standin.url, api_key="k", max_concurrency=1, **config) as con,
    ):
        con.register("films", rows)
        assert [row for (row,) in con.sql(ASKED)] == ["Yes"] * len(rows)


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_current_models_write_where_marks_are_and_read_it_again(api: str) -> None:
    standin = Provider(answer=lambda sent: "Yes")
    ask(standin, "openai:gpt-6-luna", films(), api=api)
    totals = standin.account.totals
    assert totals.requests == 6
    description = totals.written / 2
    assert description > 1024, "each of the two films was written once"
    assert totals.read == pytest.approx(4 * description, abs=4)
    assert len({sent.key for sent in standin.prompts}) == 2, "one key for each film"


def test_where_nothing_is_shared_current_models_write_nothing_and_get_no_key() -> None:
    standin = Provider(answer=lambda sent: "Yes")
    ask(standin, "openai:gpt-6-luna", films(6, 1))
    assert standin.account.totals.written == standin.account.totals.read == 0
    assert {sent.key for sent in standin.prompts} == {""}


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_older_models_are_told_of_groups_and_of_nothing_else(api: str) -> None:
    standin = Provider(answer=lambda sent: "Yes")
    ask(standin, "openai:gpt-4o-mini", films(2, 20), api=api)
    keys = {sent.text.split("Film ")[1][0]: sent.key for sent in standin.prompts}
    assert len(set(keys.values())) == 2, "more requests than a machine takes have a key a group"
    assert all(len(key) == 32 for key in keys.values())
    assert standin.account.totals.requests == 40


@pytest.mark.parametrize("refused", ["prompt_cache_key", "prompt_cache_options"])
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_server_that_refuses_it_is_asked_without_from_then_on(api: Any, refused: str) -> None:
    refusal = Refused(400, f"Unknown parameter: '{refused}'.", None, refused)
    good, route = (completion, CHAT) if api == "chat" else (response, RESPONSES)
    with serving(lambda body: refusal if refused in body else good("Yes"), route) as server:
        config = ProviderConfig(base_url=server.url, api_key="k", api=api, max_concurrency=1)
        backend = ProviderBackend("gpt-6-luna", config)
        answers = dict(backend.answer([PROMPT] * 3, Sampling()))
        assert [answers[at].text for at in range(3)] == ["Yes"] * 3
        assert len(server.asked) == 4
        told = "prompt_cache_breakpoint" in str(server.asked[-1])
        assert told == (refused != "prompt_cache_options")


def test_a_breakpoint_that_is_refused_takes_the_explicit_mode_with_it() -> None:
    where = "messages[1].content[0]"
    said = f"Unknown parameter: '{where}.prompt_cache_breakpoint'."
    refusal = Refused(400, said, "unknown_parameter", where)

    def answer(body: Json) -> Reply:
        return refusal if "prompt_cache_breakpoint" in str(body) else completion("Yes")

    with serving(answer) as server:
        backend = ProviderBackend("gpt-6-luna", ProviderConfig(base_url=server.url, api_key="k"))
        assert [one.text for _, one in backend.answer([PROMPT], Sampling())] == ["Yes"]
        assert "prompt_cache_options" not in server.asked[-1]
        assert server.asked[-1]["messages"][1]["content"] == "common own"


@pytest.mark.parametrize(
    ("provider", "model", "keys"),
    [(OPENAI, "gpt-5-mini", True), (GEMINI, "gemini-3.8-flash", False)],
)
def test_only_openai_s_form_has_keys(provider: Any, model: str, keys: bool) -> None:
    with serving(lambda body: completion("Yes")) as server:
        config = ProviderConfig(base_url=server.url, api_key="k")
        list(ProviderBackend(model, config, provider).answer([PROMPT], Sampling()))
    (body,) = server.asked
    assert ("prompt_cache_key" in body) == keys
    assert body["messages"][1]["content"] == "common own"


def test_a_key_is_that_of_the_text_up_to_where_it_is_shared() -> None:
    other = (*PROMPT[:2], Span("another"))
    longer = (PROMPT[0], Span("common too ", shares=True), PROMPT[2])
    keys = [key_of(to_messages(prompt)) for prompt in (PROMPT, other, longer, PROMPT[:1])]
    assert keys[0] == keys[1] != keys[2]
    assert keys[3] is None


def test_marks_stay_where_they_are_in_messages_that_are_joined() -> None:
    spans = (
        Span("rules\n", keep=1, keep_for=1800.0, begins=True),
        Span("film ", keep=1, keep_for=1800.0, begins=True),
        Span("row"),
    )
    (joined,) = in_form(to_messages(spans), alternates=True, marked="text")
    parts = [("rules\n", EXPLICIT), ("film ", EXPLICIT), ("row", {})]
    content = [{"type": "text", "text": text, **mark} for text, mark in parts]
    assert joined == {"role": "user", "content": content}


def test_labels_in_words_go_before_the_marked_text() -> None:
    sampling = Sampling(labels=("Yes", "No"))
    dropped = frozenset({"response_format"})
    body = OpenAIChat("m", CacheSettings.of("gpt-6-luna")).body(
        to_messages(PROMPT), sampling, dropped
    )
    assert body["messages"][0]["content"].startswith("Be brief.\nAnswer with exactly one")
    assert body["messages"][1]["content"][0] == {"type": "text", "text": "common ", **EXPLICIT}
    assert body["prompt_cache_options"] == {"mode": "explicit"}


def test_a_limit_that_is_given_or_learnt_is_known_to_who_plans() -> None:
    told = {"x-ratelimit-limit-requests": "300", "x-ratelimit-remaining-requests": "299"}
    reply = Response(completion("Yes"), headers=told)
    with serving(lambda body: reply) as server:
        config = ProviderConfig(base_url=server.url, api_key="k")
        backend = ProviderBackend("m", config)
        assert backend.limits.requests_per_minute is None
        list(backend.answer([PROMPT], Sampling()))
        assert backend.limits.requests_per_minute == 300
        limited = ProviderBackend("m", replace(config, rpm=200))
        assert limited.limits.requests_per_minute == 200
        list(limited.answer([PROMPT], Sampling()))
        assert limited.limits.requests_per_minute == 200


def test_prefixes_planned_for_an_hour_are_written_for_an_hour() -> None:
    """Over HTTP to a provider that bills by its rules; requests come ten minutes apart."""
    rows = films(1, 3).to_pylist()
    prompts = [(Span(row["film"]), Span(row["review"])) for row in rows]
    plan = cache_plan(prompts, PRICES["claude-sonnet-5"], 1, requests_per_minute=0.1)
    now = [1e6]
    standin = Provider(clock=lambda: now[0])
    with started(standin):
        config = ProviderConfig(base_url=standin.root, api_key="k")
        backend = ProviderBackend("claude-sonnet-5", config, ANTHROPIC)
        for prompt in plan.prompts(prompts):
            list(backend.answer([prompt], Sampling()))
            now[0] += 600
    marks = [block.lives for sent in standin.prompts for block in sent.blocks if block.lives]
    assert marks == [3600.0] * 3
    totals = standin.account.totals
    assert totals.read == 2 * totals.written > 0
