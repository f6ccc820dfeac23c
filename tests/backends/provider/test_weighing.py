"""Label probabilities of a provider, from the alternatives of an answer's first token."""

from __future__ import annotations

from math import exp, inf, log

import pytest

from benchmarks.standin.errors import Refused
from benchmarks.standin.http import Json
from benchmarks.standin.server import Reply, Scripted
from benchmarks.standin.wires.openai_chat import completion
from relquery.backends.provider.backend import ProviderBackend
from relquery.backends.provider.config import ProviderConfig
from relquery.prompt import Answer, Finish, Sampling, Span
from tests.backends.conftest import Serve

SENTIMENT = Sampling(labels=("positive", "negative", "neutral"), scored=True)


def weighed(text: str, likeliest: dict[str, float], finish: str = "stop") -> Json:
    """A completion with the probabilities of the first token's alternatives."""
    reply = completion(text, finish)
    top = [{"token": token, "logprob": log(each)} for token, each in likeliest.items()]
    first = {"token": "?", "logprob": -1.0, "top_logprobs": top}
    reply["choices"][0]["logprobs"] = {"content": [first]}
    return reply


def ask(server: Scripted, sampling: Sampling = SENTIMENT, count: int = 1) -> list[Answer]:
    asked = ProviderBackend("m", ProviderConfig(base_url=server.url, max_concurrency=1))
    answers = dict(asked.answer([(Span(f"Row {n}"),) for n in range(count)], sampling))
    return [answers[index] for index in range(count)]


def chances(answer: Answer) -> dict[str, float]:
    assert answer.scores is not None
    return {label: exp(log) for label, log in answer.scores.items()}


def test_scores_are_normalised_among_the_labels(serve: Serve) -> None:
    likeliest = {"positive": 0.5, "Sure": 0.25, " positive": 0.05, "negative": 0.15}
    server = serve(lambda body: weighed("positive", likeliest))
    (answer,) = ask(server)
    assert (answer.text, answer.finish, answer.error) == ("positive", Finish.STOP, None)
    assert chances(answer) == pytest.approx({"positive": 11 / 14, "negative": 3 / 14, "neutral": 0})
    assert answer.scores is not None
    assert answer.scores["neutral"] == -inf
    assert (answer.prompt_tokens, answer.output_tokens) == (10, 2)


def test_labels_are_asked_for_in_words_and_the_likeliest_is_the_answer(serve: Serve) -> None:
    """In words, so that the first token is one of theirs; whatever else is said."""
    server = serve(lambda body: weighed("negative, because", {"neg": 0.9, "pos": 0.1}, "length"))
    (answer,) = ask(server)
    assert (answer.text, answer.error) == ("negative", None)
    (body,) = server.asked
    assert (body["logprobs"], body["top_logprobs"]) == (True, 20)
    assert "response_format" not in body
    assert "exactly one of these texts" in body["messages"][0]["content"]


def test_tokens_with_which_several_labels_begin_count_only_if_they_matter(serve: Serve) -> None:
    few = {"neut": 0.6, "nega": 0.3, "ne": 0.001}
    many = {"neut": 0.6, "nega": 0.3, "ne": 0.1}
    (answer,) = ask(serve(lambda body: weighed("neutral", few)))
    assert chances(answer) == pytest.approx({"positive": 0, "negative": 1 / 3, "neutral": 2 / 3})
    (answer,) = ask(serve(lambda body: weighed("neutral", many)))
    assert (answer.text, answer.scores, answer.finish) == (None, None, Finish.ERROR)
    assert "begin with the same token" in str(answer.error)


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (completion("positive"), "gave no token probabilities"),
        (weighed("I think", {"I": 0.9, "Hm": 0.1}), "No label is among .* 'I', 'Hm'"),
        (completion(None, "content_filter"), "content filter"),
    ],
)
def test_an_answer_without_scores_says_why(serve: Serve, reply: Reply, why: str) -> None:
    (answer,) = ask(serve(lambda body: reply))
    assert answer.finish is Finish.ERROR
    with pytest.raises(ValueError, match=why):
        raise ValueError(answer.error)


def test_a_server_that_gives_few_alternatives_is_asked_for_few(serve: Serve) -> None:
    refusal = Refused(400, "top_logprobs must be at most 5.", None, "top_logprobs")

    def few(body: Json) -> Reply:
        asked = body.get("top_logprobs", 0)
        return refusal if asked > 5 else weighed("positive", {"pos": 0.9, "neg": 0.1})

    server = serve(few)
    assert [answer.text for answer in ask(server, count=2)] == ["positive"] * 2
    assert [body["top_logprobs"] for body in server.asked] == [20, 5, 5]
    (answer,) = ask(server, Sampling(labels=SENTIMENT.labels))  # nothing is asked unasked
    assert (answer.text, answer.scores) == ("positive", None)
    assert "logprobs" not in server.asked[-1]
