"""Three APIs without a server: what a request says, and how a reply is read."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from importlib.resources import files
from math import exp, inf, log
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.standin.http import Json
from benchmarks.standin.wires.anthropic import message
from benchmarks.standin.wires.openai_chat import completion
from benchmarks.standin.wires.openai_responses import response
from relquery.backends.provider.backend import ProviderBackend
from relquery.backends.provider.client import RawReply
from relquery.backends.provider.codec import RequestCodec
from relquery.backends.provider.config import ProviderConfig
from relquery.backends.provider.providers import ANTHROPIC, OPENAI
from relquery.backends.provider.server import ProviderServer, facts_of
from relquery.backends.schemas import closed
from relquery.backends.wires.errors import ProviderError, status_error
from relquery.backends.wires.messages import to_messages
from relquery.errors import ConfigError
from relquery.prompt import Adjustments, Answer, Finish, Prompt, Role, Sampling, Span
from tests.cases import cases
from tests.schemas import STRUCT

LABELS = Sampling(labels=("Yes", "No"), max_tokens=1)
NUMBER = '{"type": "integer"}'
PROMPT = Span("Be brief.", Role.SYSTEM), Span("2+2?")


def codec_of(
    api: str, sampling: Sampling | None = None, dropped: Iterable[str] = ()
) -> RequestCodec:
    """Of requests to a server of which nothing is known but what it refuses."""
    kind: Any = None if api == "messages" else api
    config = ProviderConfig("http://127.0.0.1:1/v1", "k", api=kind)
    server = ProviderServer("m", config, OPENAI if kind else ANTHROPIC)
    server.dropped.update(dropped)
    client: Any = SimpleNamespace(wire=server.wire(), url=config.base_url)
    return RequestCodec(client, server, sampling or Sampling(max_tokens=20), lambda warning: None)


def sent(codec: RequestCodec, prompt: Prompt = PROMPT) -> Json:
    return codec.body(to_messages(prompt), codec.dropped)


def read(codec: RequestCodec, said: Json | str) -> Answer:
    """The answer that a reply is, or an error in its place."""
    text = said if isinstance(said, str) else json.dumps(said)
    try:
        reply = RawReply(text, {}).read(codec.client.wire)
    except ProviderError as error:
        return codec.failed(error, 1)[0]
    return codec.read(reply, 1, codec.dropped).answer


def answered(said: Json | str, sampling: Sampling | None = None, *dropped: str) -> Answer:
    return read(codec_of("chat", sampling, dropped), said)


@pytest.mark.parametrize(("api", "settings", "body"), cases(__file__, "sent"))
def test_a_request_has_what_its_api_wants(api: str, settings: Json, body: Json) -> None:
    stop = tuple(settings.pop("stop", ()))
    assert sent(codec_of(api, Sampling(**settings, stop=stop))) == body


def test_spans_become_one_message_per_role() -> None:
    spoken = (*PROMPT, Span("a"), Span("Hm.", Role.ASSISTANT), Span("And?"))
    assert [tuple(each.values()) for each in sent(codec_of("chat"), spoken)["messages"]] == [
        ("system", "Be brief."),
        ("user", "2+2?a"),
        ("assistant", "Hm."),
        ("user", "And?"),
    ]


def test_prefixes_that_are_to_be_kept_are_marked_for_anthropic_alone() -> None:
    prompt = (
        Span("Be brief.", Role.SYSTEM, keep=1, keep_for=300.0),
        Span("common "),
        Span("text ", keep=1, keep_for=3600.0),
        Span(" ", keep=1, keep_for=3600.0),
        Span("own"),
    )
    body = sent(codec_of("messages"), prompt)
    assert body["system"] == [
        {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
    ]
    hour = {"type": "ephemeral", "ttl": "1h"}
    assert body["messages"][0]["content"] == [
        {"type": "text", "text": "common text ", "cache_control": hour},
        {"type": "text", "text": " own"},
    ]
    assert sent(codec_of("chat"), prompt)["messages"][1]["content"] == "common text  own"


def test_adjustments_that_the_api_knows_are_sent_and_others_refused_by_name() -> None:
    given: dict[str, Any] = {"frequency_penalty": 0.5, "presence_penalty": -1.0}
    adjusted = Adjustments(**given, logit_bias=((50256, -100.0), (7, 3.0)))
    body = sent(codec_of("chat", Sampling(adjustments=adjusted)))
    assert {name: body[name] for name in given} == given
    assert body["logit_bias"] == {"7": 3.0, "50256": -100.0}


@pytest.mark.parametrize(
    ("api", "sampling", "said"),
    [
        ("responses", Sampling(temperature=1, seed=3), "no seed"),
        ("messages", Sampling(temperature=1, seed=3), "no seed"),
        ("responses", Sampling(top_k=3), "no top_k"),
        ("messages", Sampling(adjustments=Adjustments(presence_penalty=1)), "presence_penalty"),
        ("responses", Sampling(adjustments=Adjustments(presence_penalty=1)), "presence_penalty"),
        ("chat", Sampling(adjustments=Adjustments(min_p=0.1, ignore_eos=True)), "^min_p, ignore"),
        ("messages", Sampling(labels=("a", "b"), scored=True), "no token probabilities"),
    ],
)
def test_what_cannot_be_asked_is_refused(api: str, sampling: Sampling, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        codec_of(api).server.check(sampling)


@pytest.mark.parametrize(
    ("api", "reply", "expected"),
    [
        ("chat", completion("x", prompt_tokens=90, cached_tokens=64), (90, 64, 2, 0)),
        ("responses", response("x", cached_tokens=4), (10, 4, 2, 0)),
        ("responses", response("x", reasoned=True), (10, 0, 2, 0)),
        ("messages", message("x", thought="Hm."), (10, 0, 2, 0)),
        ("messages", message("x", cached_tokens=90, written_tokens=7), (107, 90, 2, 7)),
    ],
)
def test_an_answer_tells_its_cost(api: str, reply: Json, expected: tuple[int, ...]) -> None:
    prompt, cached, output, written = expected
    wanted = Answer("x", Finish.STOP, None, prompt, cached, output, written_tokens=written)
    assert read(codec_of(api), reply) == wanted


CUT: Any = {"incomplete_details": {"reason": "max_output_tokens"}}
FILTERED: Any = {"incomplete_details": {"reason": "content_filter"}}


@pytest.mark.parametrize(
    ("api", "reply", "error"),
    [
        ("chat", completion("cut of", "length", output_tokens=5), "cut off after 5 tokens"),
        ("chat", {"error": {"message": "busy"}}, "not a chat completion"),
        ("chat", {"choices": []}, "not a chat completion"),
        ("chat", "<html>hello", "<html>hello"),
        ("responses", response("cut", "incomplete", **CUT), "cut off"),
        ("responses", response("x", "incomplete", **FILTERED), "content filter"),
        ("responses", response(None, refusal="I must not."), "refused: I must"),
        ("responses", response(None, "failed"), "incomplete"),
        ("responses", response(None, reasoned=True), "reasoned but gave no"),
        ("responses", {"output": "x"}, "not a response"),
        ("messages", message("cut", "max_tokens"), "cut off"),
        ("messages", message("", "refusal"), "model refused"),
        ("messages", message(None, thought="Hm."), "reasoned but gave no"),
        ("messages", {"content": 3}, "not a message"),
        ("messages", "<html>", "not a message: <html>"),
    ],
)
def test_what_is_no_whole_answer_is_an_error_that_says_why(
    api: str, reply: Json | str, error: str
) -> None:
    answer = read(codec_of(api), reply)
    assert answer.finish is (Finish.LENGTH if error.startswith("cut") else Finish.ERROR)
    assert error in str(answer.error)


def test_stop_strings_that_an_api_lacks_or_refuses_are_found_here() -> None:
    stop = Sampling(stop=("#",))
    for codec, reply in (
        (codec_of("responses", stop), response("<think>a # b</think>one # two")),
        (codec_of("chat", stop, ["stop"]), completion("<think>a # b</think>one # two")),
    ):
        assert "stop" not in sent(codec)
        answer = read(codec, reply)
        assert (answer.text, answer.finish) == ("one ", Finish.STOP)


# Labels


def test_labels_are_asked_for_by_a_schema_or_in_words_or_by_the_prompt_alone() -> None:
    body = sent(codec_of("chat", LABELS))
    form = body["response_format"]["json_schema"]
    assert form["strict"] is True
    assert form["schema"]["properties"]["answer"]["enum"] == ["Yes", "No"]
    assert body["max_tokens"] >= len('{"answer": "Yes"}')
    assert "Yes" in str(sent(codec_of("responses", LABELS))["text"])
    assert "Yes" in str(sent(codec_of("messages", LABELS))["output_config"])
    in_words = sent(codec_of("chat", LABELS, ["response_format"]))
    assert "response_format" not in in_words
    assert in_words["messages"][0]["content"].startswith("Be brief.\nAnswer with exactly one")
    assert '["Yes", "No"]' in in_words["messages"][0]["content"]
    told = sent(codec_of("chat", Sampling(labels=("Yes", "No"), told=True)))
    assert "response_format" not in told
    assert told["messages"][0]["content"] == "Be brief."


SENTIMENT = Sampling(labels=("positive", "negative", "neutral"), scored=True)


def weighed(text: str, likeliest: dict[str, float], finish: str = "stop") -> Json:
    """A completion with the probabilities of the first token's alternatives."""
    reply = completion(text, finish)
    top = [{"token": token, "logprob": log(each)} for token, each in likeliest.items()]
    first = {"token": "?", "logprob": -1.0, "top_logprobs": top}
    reply["choices"][0]["logprobs"] = {"content": [first]}
    return reply


def chances(answer: Answer) -> dict[str, float]:
    assert answer.scores is not None
    return {label: exp(log) for label, log in answer.scores.items()}


def test_scores_are_normalised_among_the_labels_and_the_likeliest_is_the_answer() -> None:
    likeliest = {"positive": 0.5, "Sure": 0.25, " positive": 0.05, "negative": 0.15}
    answer = answered(weighed("positive", likeliest), SENTIMENT)
    assert (answer.text, answer.finish, answer.error) == ("positive", Finish.STOP, None)
    assert chances(answer) == pytest.approx({"positive": 11 / 14, "negative": 3 / 14, "neutral": 0})
    assert answer.scores is not None
    assert answer.scores["neutral"] == -inf
    longer = weighed("negative, because", {"neg": 0.9, "pos": 0.1}, "length")
    assert (answered(longer, SENTIMENT).text, answered(longer, SENTIMENT).error) == (
        "negative",
        None,
    )
    few = {"neut": 0.6, "nega": 0.3, "ne": 0.001}  # what several begin with matters little
    assert chances(answered(weighed("neutral", few), SENTIMENT)) == pytest.approx(
        {"positive": 0, "negative": 1 / 3, "neutral": 2 / 3}
    )
    reply = response("Yes")
    top = [{"token": "Yes", "logprob": -0.1}, {"token": "No", "logprob": -2.4}]
    reply["output"][0]["content"][0]["logprobs"] = [{"token": "Yes", "top_logprobs": top}]
    found = chances(read(codec_of("responses", Sampling(labels=("Yes", "No"), scored=True)), reply))
    assert found["Yes"] > found["No"]


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (completion("positive"), "gave no token probabilities"),
        (weighed("I think", {"I": 0.9, "Hm": 0.1}), "No label is among"),
        (completion(None, "content_filter"), "content filter"),
        (weighed("neutral", {"neut": 0.6, "nega": 0.3, "ne": 0.1}), "begin with the same token"),
    ],
)
def test_an_answer_without_scores_says_why(reply: Json, why: str) -> None:
    answer = answered(reply, SENTIMENT)
    assert (answer.text, answer.scores, answer.finish) == (None, None, Finish.ERROR)
    assert why in str(answer.error)


def test_what_is_weighed_is_asked_for_in_words_with_as_many_alternatives_as_are_given() -> None:
    """In words, so that the first token is one of the labels'."""
    for dropped, most in (((), 20), (("top_logprobs",), 5)):
        body = sent(codec_of("chat", SENTIMENT, dropped))
        assert (body["logprobs"], body["top_logprobs"]) == (True, most)
        assert "response_format" not in body
        assert "exactly one of these texts" in body["messages"][0]["content"]
    assert "logprobs" not in sent(codec_of("chat", LABELS))
    responses = sent(codec_of("responses", SENTIMENT))
    assert responses["include"] == ["message.output_text.logprobs"]


# Schemas


def schema_of(schema: str) -> Any:
    """As a server is told."""
    found = sent(codec_of("chat", Sampling(schema=schema)))["response_format"]
    assert found["type"] == "json_schema"
    assert found["json_schema"]["strict"] is True
    return found["json_schema"]["schema"]


def test_an_object_is_asked_for_as_it_is_and_all_else_in_one() -> None:
    assert schema_of(STRUCT) == closed(STRUCT)
    held = schema_of('{"type": "number"}')
    assert (held["properties"], held["required"]) == ({"answer": {"type": "number"}}, ["answer"])
    items = {"type": "array", "items": {"$ref": "#/$defs/n"}}
    held = schema_of(json.dumps(items | {"$defs": {"n": {"const": 1}}}))
    assert held["$defs"] == {"n": {"const": 1}}, "where references find them"
    assert held["properties"]["answer"] == items
    in_words = sent(codec_of("chat", Sampling(schema=NUMBER), ["response_format"]))
    assert in_words["messages"][0]["content"] == (
        "Be brief.\nAnswer with nothing but JSON that is valid under this JSON Schema: "
        '{"type": "integer"}'
    )


def test_bounds_that_are_those_of_the_type_take_no_tokens() -> None:
    far = {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1}
    near = far | {"maximum": 5}
    given = {"far": far, "near": near, "minimum": far, "list": {"type": "array", "items": far}}
    plain = {"type": "integer"}
    less = {"far": plain, "near": plain | {"maximum": 5}, "minimum": plain}
    less["list"] = {"type": "array", "items": plain}
    found = schema_of(json.dumps({"type": "object", "properties": given}))
    assert found["properties"] == less


BIG = "1" * 5_000 + ".50"


@pytest.mark.parametrize(
    ("schema", "said", "text"),
    [
        (NUMBER, "7", "7"),
        (NUMBER, "```json\n7\n```", "7"),
        (NUMBER, '<think>8?</think>{"answer": 7}', "7"),
        ('{"type": "number"}', f' {{ "answer" : {BIG} }} ', BIG),
        (STRUCT, '```\n{"answer": 1}\n```', '{"answer": 1}'),
        *((NUMBER, said, None) for said in ("seven", '{"answer": ', "{'answer': 7}", "NaN", "7 x")),
    ],
)
def test_json_is_read_also_as_servers_write_it_unasked(
    schema: str, said: str, text: str | None
) -> None:
    answer = answered(completion(said), Sampling(schema=schema))
    if text is None:
        assert (answer.text, answer.error) == (said, f"The answer {said!r} is not JSON.")
    else:
        assert (answer.text, answer.error) == (text, None)
    cut = answered(completion('{"name": "x', "length"), Sampling(schema=STRUCT))
    assert (cut.text, cut.finish) == ('{"name": "x', Finish.LENGTH)


# What is known of models and servers


@pytest.mark.parametrize(("provider", "model", "without"), cases(__file__, "known"))
def test_what_is_known_needs_no_refusal(provider: str, model: str, without: list[str]) -> None:
    facts = facts_of(provider, model)
    assert facts is not None
    assert facts.without == set(without)


def test_what_is_known_has_a_day_and_a_source_and_of_others_nothing_is_taken_for_granted() -> None:
    file = files("relquery.backends.provider").joinpath("facts.toml")
    for each in tomllib.loads(file.read_text(encoding="utf-8"))["model"]:
        assert each["as_of"]
        assert each["source"].startswith("https://")
    assert facts_of("openai", "some-model") is None
    other = ProviderServer("gpt-5-mini", ProviderConfig("http://localhost:8000/v1", "k"))
    assert other.dropped == set(), "another server may have another model of this name"
    pro = ProviderServer("gpt-5-pro", ProviderConfig(api_key="k"))
    assert pro.api == "responses", "it is known to take nothing else"


def test_a_ledger_knows_a_model_by_its_name_whatever_its_server() -> None:
    url = "http://10.0.0.7:8000/v1"
    moved = ProviderBackend("m", ProviderConfig(base_url=url, api_key="k"), OPENAI)
    assert moved.known_as() == ("openai:m", "openai:m@10.0.0.7:8000")
    apart = ProviderBackend("m", ProviderConfig(base_url=url, api_key="k", by_server=True))
    assert apart.known_as() == ("openai:m@10.0.0.7:8000",)


def test_keys_that_a_server_repeats_are_not_shown() -> None:
    said = "Bad api_key=abcdef123 in this prompt, or sk-proj-abcdef123456."
    error = status_error(400, {"error": {"message": said}})
    assert error.words == "The server answered 400: Bad api_key=*** in this prompt, or ***"
    key = "correct horse".replace(" ", "-")
    ProviderServer("m", ProviderConfig(api_key=key))
    refused = status_error(400, {"error": {"message": f"{key!r} may not do that."}})
    assert "may not do that" in refused.words
    assert key not in refused.words
