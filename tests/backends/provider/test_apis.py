"""Three APIs over HTTP: what is sent, and how replies are read."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from importlib.resources import files
from typing import Any

import pytest

from benchmarks.standin.errors import Refused
from benchmarks.standin.http import Json, Response
from benchmarks.standin.server import (
    CHAT,
    MESSAGES,
    RESPONSES,
    Reply,
    Script,
    Scripted,
    Silence,
    Stream,
    question,
    serving,
)
from benchmarks.standin.wires.anthropic import message
from benchmarks.standin.wires.openai_chat import completion
from benchmarks.standin.wires.openai_responses import response
from relquery.backends.load import load
from relquery.backends.provider.backend import ProviderBackend
from relquery.backends.provider.config import ProviderConfig
from relquery.backends.provider.providers import ANTHROPIC, OPENAI, PROVIDERS
from relquery.backends.provider.server import facts_of
from relquery.errors import ConfigError, ModelError, SamplingWarning
from relquery.prompt import Adjustments, Answer, Finish, Role, Sampling, Span
from tests.backends.conftest import Serve
from tests.cases import cases

pytestmark = pytest.mark.long

LABELS = Sampling(labels=("Yes", "No"), max_tokens=1)
Open = Callable[[str, Script], tuple[ProviderBackend, Scripted]]


ROUTES = {"chat": CHAT, "responses": RESPONSES, "messages": MESSAGES}
WHOLE: dict[str, Callable[..., Reply]] = {
    "chat": completion,
    "responses": response,
    "messages": message,
}


@pytest.fixture
def opened() -> Iterator[Open]:
    with ExitStack() as stack:

        def start(api: str, answer: Script) -> tuple[ProviderBackend, Scripted]:
            server = stack.enter_context(serving(answer, ROUTES[api]))
            if api == "messages":
                given = ProviderConfig(base_url=server.root, api_key="k", max_retries=1)
                return ProviderBackend("m", given, ANTHROPIC), server
            kind: Any = api
            given = ProviderConfig(server.url, "k", api=kind, max_retries=1)
            return ProviderBackend("m", given), server

        yield start


def ask(
    backend: ProviderBackend, texts: Sequence[str], sampling: Sampling | None = None
) -> list[Answer]:
    prompts = [(Span("Be brief.", Role.SYSTEM), Span(text)) for text in texts]
    answers = dict(backend.answer(prompts, sampling or Sampling(max_tokens=20)))
    return [answers[index] for index in range(len(texts))]


SAMPLED = Sampling(20, 0.5, top_p=0.9, top_k=7, stop=("#",))


@pytest.mark.parametrize(
    ("api", "sampling"), [("responses", Sampling(max_tokens=20)), ("messages", SAMPLED)]
)
def test_a_request_has_what_its_api_wants(opened: Open, api: str, sampling: Sampling) -> None:
    backend, server = opened(api, lambda body: WHOLE[api]("4"))
    assert ask(backend, ["2+2?"], sampling)[0].text == "4"
    assert [server.asked] == [body for name, body in cases(__file__, "sent") if name == api]
    assert server.keys == {"k"}


def test_prefixes_that_are_to_be_kept_are_marked_for_anthropic_alone(opened: Open) -> None:
    prompt = (
        Span("Be brief.", Role.SYSTEM, keep=1, keep_for=300.0),
        Span("common "),
        Span("text ", keep=1, keep_for=3600.0),
        Span(" ", keep=1, keep_for=3600.0),
        Span("own"),
    )
    backend, server = opened("messages", lambda body: message("4"))
    list(backend.answer([prompt], Sampling(max_tokens=20)))
    (body,) = server.asked
    assert body["system"] == [
        {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
    ]
    hour = {"type": "ephemeral", "ttl": "1h"}
    assert body["messages"][0]["content"] == [
        {"type": "text", "text": "common text ", "cache_control": hour},
        {"type": "text", "text": " own"},
    ]
    backend, server = opened("chat", lambda body: completion("4"))
    list(backend.answer([prompt], Sampling(max_tokens=20)))
    assert server.asked[0]["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "common text  own"},
    ]


@pytest.mark.parametrize("supported", [True, False])
def test_anthropic_is_asked_what_an_unknown_model_takes(opened: Open, *, supported: bool) -> None:
    backend, server = opened("messages", lambda body: message("Yes"))
    server.told["m"] = {
        "id": "m",
        "type": "model",
        "capabilities": {"structured_outputs": {"supported": supported}},
    }
    for _ in range(2):
        assert ask(backend, ["Good?"], LABELS)[0].text == "Yes"
    assert ["output_config" in body for body in server.asked] == [supported] * 2


def test_stop_strings_that_an_api_lacks_are_found_here(opened: Open) -> None:
    backend, server = opened("responses", lambda body: response("one # two"))
    (answer,) = ask(backend, ["a"], Sampling(stop=("#",)))
    assert (answer.text, answer.finish) == ("one ", Finish.STOP)
    assert "stop" not in server.asked[0]


@pytest.mark.parametrize(
    ("api", "sampling", "said"),
    [
        ("responses", Sampling(temperature=1, seed=3), "no seed"),
        ("messages", Sampling(temperature=1, seed=3), "no seed"),
        ("responses", Sampling(top_k=3), "no top_k"),
        ("messages", Sampling(adjustments=Adjustments(presence_penalty=1)), "presence_penalty"),
        ("responses", Sampling(adjustments=Adjustments(presence_penalty=1)), "presence_penalty"),
        ("messages", Sampling(labels=("a", "b"), scored=True), "no token probabilities"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    opened: Open, api: str, sampling: Sampling, said: str
) -> None:
    backend, server = opened(api, lambda body: Refused(500, "not to be asked"))
    with pytest.raises(ConfigError, match=said):
        backend.check(sampling)
    assert server.asked == []


@pytest.mark.parametrize(
    ("api", "reply", "expected"),
    [
        ("responses", response("x", cached_tokens=4), Answer("x", Finish.STOP, None, 10, 4, 2)),
        ("responses", response("x", reasoned=True), Answer("x", Finish.STOP, None, 10, 0, 2)),
        ("messages", message("x"), Answer("x", Finish.STOP, None, 10, 0, 2)),
        ("messages", message("x", thought="Hm."), Answer("x", Finish.STOP, None, 10, 0, 2)),
        (
            "messages",
            message("x", cached_tokens=90, written_tokens=7),
            Answer("x", Finish.STOP, None, 107, 90, 2, written_tokens=7),
        ),
    ],
)
def test_an_answer_tells_its_cost(opened: Open, api: str, reply: Reply, expected: Answer) -> None:
    assert ask(opened(api, lambda body: reply)[0], ["a"]) == [expected]


CUT: Any = {"incomplete_details": {"reason": "max_output_tokens"}}
FILTERED: Any = {"incomplete_details": {"reason": "content_filter"}}
LONG = Refused(400, "prompt is too long: 9 > 8")


@pytest.mark.parametrize(
    ("api", "reply", "finish", "error"),
    [
        ("responses", response("cut", "incomplete", **CUT), Finish.LENGTH, "cut off"),
        ("responses", response("x", "incomplete", **FILTERED), Finish.ERROR, "content filter"),
        ("responses", response(None, refusal="I must not."), Finish.ERROR, "refused: I must"),
        ("responses", response(None, "failed"), Finish.ERROR, "incomplete"),
        ("responses", response(None, reasoned=True), Finish.ERROR, "reasoned but gave no"),
        ("responses", Response({"output": "x"}), Finish.ERROR, "not a response"),
        ("messages", message("cut", "max_tokens"), Finish.LENGTH, "cut off"),
        ("messages", message("", "refusal"), Finish.ERROR, "model refused"),
        ("messages", message(None, thought="Hm."), Finish.ERROR, "reasoned but gave no"),
        ("messages", Response({"content": 3}), Finish.ERROR, "not a message"),
        ("messages", Response("<html>"), Finish.ERROR, "not a message: <html>"),
        ("messages", LONG, Finish.ERROR, "answered 400: prompt is too long"),
    ],
)
def test_what_is_no_whole_answer_is_an_error_that_says_why(
    opened: Open, api: str, reply: Reply, finish: Finish, error: str
) -> None:
    good = WHOLE[api]("good")
    backend, _ = opened(api, lambda body: reply if question(body) == "bad" else good)
    fine, bad = ask(backend, ["good", "bad"])
    assert (fine.text, bad.finish) == ("good", finish)
    assert error in str(bad.error)


def test_labels_are_weighed_by_the_probabilities_of_a_response(opened: Open) -> None:
    top = [{"token": "Yes", "logprob": -0.1}, {"token": "No", "logprob": -2.4}]
    reply = response("Yes")
    reply["output"][0]["content"][0]["logprobs"] = [{"token": "Yes", "top_logprobs": top}]
    backend, server = opened("responses", lambda body: reply)
    (answer,) = ask(backend, ["a"], Sampling(labels=("Yes", "No"), scored=True))
    assert answer.scores is not None
    assert answer.scores["Yes"] > answer.scores["No"]
    assert server.asked[0]["include"] == ["message.output_text.logprobs"]


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Refused(401, "invalid x-api-key"), "ANTHROPIC_API_KEY"),
        (Refused(404, "model: m"), "does not serve the model 'm'"),
    ],
)
def test_what_all_would_meet_stops_the_query(opened: Open, reply: Reply, said: str) -> None:
    backend, server = opened("messages", lambda body: reply)
    with pytest.raises(ModelError, match=said):
        ask(backend, ["a"] * 50)
    assert len(server.asked) <= 20


@pytest.mark.parametrize("status", [529, 429])
def test_a_busy_server_is_asked_again_by_us_alone(opened: Open, status: int) -> None:
    replies = iter([Refused(status, "Busy", retry_after="0")])
    backend, server = opened("messages", lambda body: next(replies, message("x")))
    (answer,) = ask(backend, ["a"])
    assert (answer.text, answer.attempts, len(server.asked)) == ("x", 2, 2)


def reasoning_model(body: Json) -> Reply:
    """As current reasoning models: with a limit of another name, and no temperature."""
    for name, code, said in cases(__file__, "reasoning"):
        if name in body:
            return Refused(400, said, code, name)
    return completion(question(body))


def modern_claude(body: Json) -> Reply:
    if "temperature" in body:
        said = "`temperature` is deprecated for this model."
        return Refused(400, said)
    return message(question(body))


@pytest.mark.parametrize(
    ("api", "answer"), [("chat", reasoning_model), ("messages", modern_claude)]
)
def test_rows_learn_from_the_first_refusals(opened: Open, api: str, answer: Script) -> None:
    backend, server = opened(api, answer)
    texts = [str(number) for number in range(500)]
    with pytest.warns(SamplingWarning, match="refuses temperature 0"):
        answers = ask(backend, texts)
    assert [answer.text for answer in answers] == texts
    assert len(server.asked) <= 505


@pytest.mark.parametrize(("provider", "model", "without"), cases(__file__, "known"))
def test_what_is_known_needs_no_refusal(provider: str, model: str, without: list[str]) -> None:
    facts = facts_of(provider, model)
    assert facts is not None
    assert facts.without == set(without)


def test_what_is_known_has_a_day_and_a_source() -> None:
    file = files("relquery.backends.provider").joinpath("facts.toml")
    for each in tomllib.loads(file.read_text(encoding="utf-8"))["model"]:
        assert each["as_of"]
        assert each["source"].startswith("https://")


def test_of_other_models_nothing_is_taken_for_granted() -> None:
    assert facts_of("openai", "some-model") is None
    server = "http://localhost:8000/v1"
    backend = ProviderBackend("gpt-5-mini", ProviderConfig(base_url=server, api_key="k"))
    assert backend._server.dropped == set(), "another server may have another model of this name"
    pro = ProviderBackend("gpt-5-pro", ProviderConfig(api_key="k"))
    assert pro._server.api == "responses", "it is known to take nothing else"


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("openai:gpt-5-mini", "OPENAI_API_KEY"),
        ("anthropic:claude-sonnet-5", "ANTHROPIC_API_KEY"),
        ("gemini:gemini-3.8-flash", "GEMINI_API_KEY"),
    ],
)
def test_a_provider_is_named_before_the_model_and_needs_its_key(
    name: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for provider in PROVIDERS.values():
        monkeypatch.delenv(provider.key, raising=False)
    with pytest.raises(ModelError, match=f"Set the environment variable {variable}"):
        load(name).check(Sampling())
    monkeypatch.setenv(variable, "k")
    assert (load(name).name, load(name).known_as()) == (name, (name,))


def test_a_ledger_knows_a_model_by_its_name_whatever_its_server() -> None:
    url = "http://10.0.0.7:8000/v1"
    moved = ProviderBackend("m", ProviderConfig(base_url=url, api_key="k"), OPENAI)
    assert moved.known_as() == ("openai:m", "openai:m@10.0.0.7:8000")
    apart = ProviderBackend("m", ProviderConfig(base_url=url, api_key="k", by_server=True))
    assert apart.known_as() == ("openai:m@10.0.0.7:8000",)


def test_a_mistyped_option_is_named() -> None:
    with pytest.raises(ConfigError, match=r"of an 'anthropic:' model.*Did you mean 'budget'"):
        load("anthropic:claude-sonnet-5", buget="5USD")


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
def test_a_reply_that_breaks_off_is_asked_for_again(opened: Open, api: str) -> None:
    replies: Iterator[Reply | Stream] = iter([Stream(['{"choices": [', Silence.HANG_UP])])
    backend, server = opened(api, lambda body: next(replies, WHOLE[api]("x")))
    (answer,) = ask(backend, ["a"])
    assert (answer.text, answer.attempts, len(server.asked)) == ("x", 2, 2)


def test_keys_that_a_server_repeats_are_not_shown(opened: Open) -> None:
    def answer(body: Json) -> Reply:
        if "bad" in question(body):
            return Refused(400, "Bad api_key=abcdef123 in this prompt, or sk-proj-abcdef123456.")
        return completion("fine")

    backend, _ = opened("chat", answer)
    fine, bad = ask(backend, ["good", "bad"])
    assert fine.text == "fine"
    assert bad.error == "The server answered 400: Bad api_key=*** in this prompt, or ***"


def test_the_key_of_a_connection_is_in_no_message_whatever_it_looks_like(serve: Serve) -> None:
    key = "correct horse".replace(" ", "-")
    server = serve(lambda body: Refused(400, f"{key!r} may not do that.", "not_allowed"))
    backend = ProviderBackend("m", ProviderConfig(base_url=server.url, api_key=key))
    (answer,) = ask(backend, ["a"])
    assert "may not do that" in (answer.error or "")
    assert key not in (answer.error or "")
