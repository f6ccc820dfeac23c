"""Three APIs, each by its official SDK over HTTP: what is sent, and how replies are read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from relquery.backends.load import load
from relquery.backends.provider.backend import ProviderBackend
from relquery.backends.provider.config import ProviderConfig
from relquery.backends.provider.wires.facts import facts_of
from relquery.backends.provider.wires.providers import ANTHROPIC, OPENAI, PROVIDERS
from relquery.errors import ConfigError, MissingExtraError, ModelError, SamplingWarning
from relquery.prompt import Answer, Finish, Role, Sampling, Span
from tests.backends.provider.chat_server import (
    CHAT,
    MESSAGES,
    RESPONSES,
    AnswerFunction,
    Body,
    ChatServer,
    Reply,
    Serve,
    Silence,
    Stream,
    anthropic_failure,
    completion,
    failure,
    message,
    question,
    response,
    serving,
)

pytestmark = pytest.mark.long

LABELS = Sampling(labels=("Yes", "No"), max_tokens=1)
Open = Callable[[str, AnswerFunction], tuple[ProviderBackend, ChatServer]]


@pytest.fixture
def opened() -> Iterator[Callable[..., tuple[ProviderBackend, ChatServer]]]:
    """A backend of an API, and the server that it asks."""
    with ExitStack() as stack:

        def start(
            api: str, answer: AnswerFunction, model: str = "m", **config: Any
        ) -> tuple[ProviderBackend, ChatServer]:
            route = {"chat": CHAT, "responses": RESPONSES, "messages": MESSAGES}[api]
            server = stack.enter_context(serving(answer, route))
            if api == "messages":
                given = ProviderConfig(base_url=server.root, api_key="k", **config)
                return ProviderBackend(model, given, ANTHROPIC), server
            kind: Any = api
            given = ProviderConfig(base_url=server.url, api_key="k", api=kind, **config)
            return ProviderBackend(model, given), server

        yield start


def ask(
    backend: ProviderBackend, texts: Sequence[str], sampling: Sampling | None = None
) -> list[Answer]:
    prompts = [(Span("Be brief.", Role.SYSTEM), Span(text)) for text in texts]
    answers = dict(backend.answer(prompts, sampling or Sampling(max_tokens=20)))
    return [answers[index] for index in range(len(texts))]


# what is sent


def test_a_response_is_asked_for_and_not_stored(opened: Open) -> None:
    backend, server = opened("responses", lambda body: response("4"))
    assert ask(backend, ["2+2?"])[0].text == "4"
    assert server.asked == [
        {
            "model": "m",
            "input": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "2+2?"},
            ],
            "max_output_tokens": 20,
            "temperature": 0.0,
            "store": False,
        }
    ]


def test_a_message_has_its_rules_apart_and_its_settings(opened: Open) -> None:
    backend, server = opened("messages", lambda body: message("4"))
    sampling = Sampling(20, 0.5, top_p=0.9, top_k=7, stop=("#",))
    assert ask(backend, ["2+2?"], sampling)[0].text == "4"
    assert server.asked == [
        {
            "model": "m",
            "system": "Be brief.",
            "messages": [{"role": "user", "content": "2+2?"}],
            "max_tokens": 20,
            "temperature": 0.5,
            "top_p": 0.9,
            "top_k": 7,
            "stop_sequences": ["#"],
        }
    ]
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
def test_anthropic_is_asked_what_a_model_takes_of_which_nothing_is_known(
    opened: Open, *, supported: bool
) -> None:
    backend, server = opened("messages", lambda body: message("Yes"))
    server.told["m"] = {
        "id": "m",
        "type": "model",
        "capabilities": {"structured_outputs": {"supported": supported}},
    }
    for _ in range(2):
        assert ask(backend, ["Good?"], LABELS)[0].text == "Yes"
    assert ["output_config" in body for body in server.asked] == [supported] * 2


def test_labels_are_asked_for_by_a_schema_in_each_api(opened: Open) -> None:
    held = '{"answer": "Yes"}'
    replies = {"chat": completion(held), "responses": response(held), "messages": message(held)}
    for api, reply in replies.items():
        backend, server = opened(api, lambda body, reply=reply: reply)  # type: ignore[misc]
        assert ask(backend, ["Good?"], LABELS)[0].text == "Yes"
        body = server.asked[0]
        schema = {
            "chat": lambda body: body["response_format"]["json_schema"]["schema"],
            "responses": lambda body: body["text"]["format"]["schema"],
            "messages": lambda body: body["output_config"]["format"]["schema"],
        }[api](body)
        assert schema["properties"]["answer"]["enum"] == ["Yes", "No"]


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
        ("messages", Sampling(labels=("a", "b"), scored=True), "no token probabilities"),
    ],
)
def test_what_an_api_cannot_be_asked_is_refused_before_a_call(
    opened: Open, api: str, sampling: Sampling, said: str
) -> None:
    backend, server = opened(api, lambda body: failure(500, "not to be asked"))
    with pytest.raises(ConfigError, match=said):
        backend.check(sampling)
    assert server.asked == []


# what comes back


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
def test_an_answer_says_what_it_cost(
    opened: Open, api: str, reply: Reply, expected: Answer
) -> None:
    backend, _ = opened(api, lambda body: reply)
    assert ask(backend, ["a"]) == [expected]


@pytest.mark.parametrize(
    ("api", "reply", "finish", "error"),
    [
        (
            "responses",
            response("cut", "incomplete", incomplete_details={"reason": "max_output_tokens"}),
            Finish.LENGTH,
            "cut off",
        ),
        (
            "responses",
            response("x", "incomplete", incomplete_details={"reason": "content_filter"}),
            Finish.ERROR,
            "content filter",
        ),
        ("responses", response(None, refusal="I must not."), Finish.ERROR, "refused: I must"),
        ("responses", response(None, "failed"), Finish.ERROR, "incomplete"),
        ("responses", response(None, reasoned=True), Finish.ERROR, "reasoned but gave no"),
        ("responses", Reply({"output": "x"}), Finish.ERROR, "not a response"),
        ("messages", message("cut", "max_tokens"), Finish.LENGTH, "cut off"),
        ("messages", message("", "refusal"), Finish.ERROR, "model refused"),
        ("messages", message(None, thought="Hm."), Finish.ERROR, "reasoned but gave no"),
        ("messages", Reply({"content": 3}), Finish.ERROR, "not a message"),
        ("messages", Reply("<html>"), Finish.ERROR, "not a message: <html>"),
        (
            "messages",
            anthropic_failure(400, "prompt is too long: 9 > 8", "invalid_request_error"),
            Finish.ERROR,
            "answered 400: prompt is too long",
        ),
    ],
)
def test_what_is_no_whole_answer_is_an_error_that_says_why(
    opened: Open, api: str, reply: Reply, finish: Finish, error: str
) -> None:
    good = response("good") if api == "responses" else message("good")
    backend, _ = opened(api, lambda body: reply if question(body) == "bad" else good)
    fine, bad = ask(backend, ["good", "bad"])
    assert fine.text == "good"
    assert bad.finish is finish
    assert error in str(bad.error)


def test_labels_are_weighed_by_the_probabilities_of_a_response(opened: Open) -> None:
    top = [{"token": "Yes", "logprob": -0.1}, {"token": "No", "logprob": -2.4}]
    reply = response("Yes")
    assert isinstance(reply.body, dict)
    reply.body["output"][0]["content"][0]["logprobs"] = [{"token": "Yes", "top_logprobs": top}]
    backend, server = opened("responses", lambda body: reply)
    (answer,) = ask(backend, ["a"], Sampling(labels=("Yes", "No"), scored=True))
    assert answer.scores is not None
    assert answer.scores["Yes"] > answer.scores["No"]
    assert server.asked[0]["include"] == ["message.output_text.logprobs"]


# trouble


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (anthropic_failure(401, "invalid x-api-key", "authentication_error"), "ANTHROPIC_API_KEY"),
        (anthropic_failure(404, "model: m", "not_found_error"), "does not serve the model 'm'"),
    ],
)
def test_what_every_message_would_meet_stops_the_query(
    opened: Open, reply: Reply, said: str
) -> None:
    backend, server = opened("messages", lambda body: reply)
    with pytest.raises(ModelError, match=said):
        ask(backend, ["a"] * 50)
    assert len(server.asked) <= 20


@pytest.mark.parametrize(("status", "kind"), [(529, "overloaded_error"), (429, "rate_limit_error")])
def test_a_busy_server_is_asked_again_by_us_alone(opened: Open, status: int, kind: str) -> None:
    replies = iter([anthropic_failure(status, "Busy", kind, retry_after="0")])
    backend, server = opened("messages", lambda body: next(replies, message("x")))
    (answer,) = ask(backend, ["a"])
    assert (answer.text, answer.attempts, len(server.asked)) == ("x", 2, 2)


# what models take


def reasoning_model(body: Body) -> Reply:
    """As current reasoning models: with a limit of another name, and no temperature."""
    if "max_tokens" in body:
        return failure(
            400,
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
            "'max_completion_tokens' instead.",
            "unsupported_parameter",
            "max_tokens",
        )
    if "temperature" in body:
        return failure(
            400,
            "Unsupported value: 'temperature' does not support 0.0 with this model.",
            "unsupported_value",
            "temperature",
        )
    return completion(question(body))


def modern_claude(body: Body) -> Reply:
    if "temperature" in body:
        said = "`temperature` is deprecated for this model."
        return anthropic_failure(400, said, "invalid_request_error")
    return message(question(body))


@pytest.mark.parametrize(
    ("api", "answer"), [("chat", reasoning_model), ("messages", modern_claude)]
)
def test_rows_learn_from_the_first_refusals(opened: Open, api: str, answer: AnswerFunction) -> None:
    backend, server = opened(api, answer)
    texts = [str(number) for number in range(500)]
    with pytest.warns(SamplingWarning, match="refuses temperature 0"):
        answers = ask(backend, texts)
    assert [answer.text for answer in answers] == texts
    assert len(server.asked) <= 505


@pytest.mark.parametrize(
    ("provider", "model", "without"),
    [
        ("openai", "gpt-5-mini", {"max_tokens", "temperature", "top_p"}),
        ("openai", "gpt-5-mini-2025-08-07", {"max_tokens", "temperature", "top_p"}),
        ("openai", "o4-mini", {"max_tokens", "temperature", "top_p"}),
        ("openai", "gpt-4o-mini", set()),
        ("anthropic", "claude-sonnet-5", {"temperature", "top_p"}),
        ("anthropic", "claude-opus-4-7", {"temperature", "top_p"}),
        ("anthropic", "claude-haiku-5-5-20261024", {"temperature", "top_p"}),
        ("anthropic", "claude-haiku-4-5-20251001", set()),
        ("anthropic", "claude-opus-4-20250514", set()),
    ],
)
def test_what_is_known_needs_no_refusal(provider: str, model: str, without: set[str]) -> None:
    facts = facts_of(provider, model)
    assert facts is not None
    assert facts.without == without
    assert facts.source.startswith("https://")


def test_of_other_models_nothing_is_taken_for_granted() -> None:
    assert facts_of("openai", "some-model") is None
    server = "http://localhost:8000/v1"
    backend = ProviderBackend("gpt-5-mini", ProviderConfig(base_url=server, api_key="k"))
    assert backend._server.learnt == set(), "another server may have another model of this name"


def test_a_model_for_responses_alone_is_asked_so() -> None:
    pro = ProviderBackend("gpt-5-pro", ProviderConfig(api_key="k"))
    assert pro._server.api == "responses"


# names and keys


@pytest.mark.parametrize(
    ("model", "variable", "name"),
    [
        ("openai:gpt-5-mini", "OPENAI_API_KEY", "openai:gpt-5-mini"),
        ("anthropic:claude-sonnet-5", "ANTHROPIC_API_KEY", "anthropic:claude-sonnet-5"),
        ("gemini:gemini-3.8-flash", "GEMINI_API_KEY", "gemini:gemini-3.8-flash"),
    ],
)
def test_a_provider_is_named_before_the_model_and_needs_its_key(
    model: str, variable: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for provider in PROVIDERS.values():
        monkeypatch.delenv(provider.key, raising=False)
    with pytest.raises(ModelError, match=f"Set the environment variable {variable}"):
        load(model)
    monkeypatch.setenv(variable, "k")
    backend = load(model)
    assert backend.name == name
    assert backend.known_as() == (name,)


def test_a_ledger_knows_a_model_by_its_name_whatever_its_server() -> None:
    url = "http://10.0.0.7:8000/v1"
    moved = ProviderBackend("m", ProviderConfig(base_url=url, api_key="k"), OPENAI)
    assert moved.known_as() == ("openai:m", "openai:m@10.0.0.7:8000")
    apart = ProviderBackend("m", ProviderConfig(base_url=url, api_key="k", by_server=True))
    assert apart.known_as() == ("openai:m@10.0.0.7:8000",)


def test_without_the_package_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anthropic", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'relquery\[anthropic\]'"):
        load("anthropic:claude-sonnet-5", api_key="k")


def test_an_option_of_a_provider_that_is_mistyped_is_named() -> None:
    with pytest.raises(ConfigError, match=r"of an 'anthropic:' model.*Did you mean 'budget'"):
        load("anthropic:claude-sonnet-5", buget="5USD")


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
def test_a_reply_that_breaks_off_is_asked_for_again(opened: Open, api: str) -> None:
    whole = {"chat": completion("x"), "responses": response("x"), "messages": message("x")}[api]
    replies: Iterator[Reply | Stream] = iter([Stream(['{"choices": [', Silence.HANG_UP])])
    backend, server = opened(api, lambda body: next(replies, whole))
    (answer,) = ask(backend, ["a"])
    assert (answer.text, answer.attempts, len(server.asked)) == ("x", 2, 2)


def test_keys_that_a_server_repeats_are_not_shown(opened: Open) -> None:
    def answer(body: Body) -> Reply:
        if "bad" in question(body):
            return failure(400, "Bad api_key=abcdef123 in this prompt, or sk-proj-abcdef123456.")
        return completion("fine")

    backend, _ = opened("chat", answer)
    fine, bad = ask(backend, ["good", "bad"])
    assert fine.text == "fine"
    assert bad.error == "The server answered 400: Bad api_key=*** in this prompt, or ***"


def test_the_key_of_a_connection_is_in_no_message_whatever_it_looks_like(serve: Serve) -> None:
    key = "correct horse".replace(" ", "-")
    server = serve(lambda body: failure(400, f"{key!r} may not do that.", "not_allowed"))
    config = ProviderConfig(base_url=server.url, api_key=key)
    asked = ProviderBackend("m", config)
    (answer,) = [answer for _, answer in asked.answer([(Span("a"),)], Sampling())]
    assert answer.error is not None
    assert "may not do that" in answer.error
    assert key not in answer.error
