"""vLLM in this process: calls in our order, labels weighed token by token, nothing left open."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from math import exp, log
from typing import Any

import pytest

from relquery.backends.load import load
from relquery.errors import ConfigError, MissingExtraError, ModelError
from relquery.prompt import Answer, Finish, Prompt, Reuse, Role, Sampling, Span
from tests.vllm.fake import logprob

LABELS = ("Yes", "No", "Not", "Nothing", "Yesterday")
SCORED = Sampling(labels=LABELS, max_tokens=1, scored=True)


@pytest.fixture
def backend() -> Iterator[Any]:
    with closing(load("vllm:tiny")) as backend:
        yield backend


def prompt(text: str) -> Prompt:
    return Span("Be brief.", Role.SYSTEM), Span(text)


def ask(backend: Any, texts: Sequence[str], sampling: Sampling) -> list[Answer]:
    found = dict(backend.answer([prompt(text) for text in texts], sampling))
    assert sorted(found) == list(range(len(texts)))
    return [found[at] for at in range(len(texts))]


def engine(backend: Any) -> Any:
    return backend._llm.llm_engine


def test_prompts_go_out_in_the_order_given(backend: Any) -> None:
    texts = [f"row number {number}" for number in range(20)]
    answers = ask(backend, texts, Sampling(max_tokens=8))
    assert [answer.text for answer in answers] == [text[-4:].upper() for text in texts]
    assert {answer.finish for answer in answers} == {Finish.STOP}
    assert {answer.cached_tokens for answer in answers} == {2}
    assert [text for text, _ in engine(backend).asked] == [
        f"\x01Be brief.\n\n{text}\n\n" for text in texts
    ]


def test_what_is_cut_off_says_so(backend: Any) -> None:
    (answer,) = ask(backend, ["a long story"], Sampling(max_tokens=2))
    assert answer.finish is Finish.LENGTH


def test_settings_are_passed_on(backend: Any) -> None:
    schema = '{"type": "object", "properties": {"good": {"type": "boolean"}}}'
    ask(backend, ["x"], Sampling(temperature=0.5, top_p=0.9, top_k=7, seed=3, schema=schema))
    ((_, params),) = engine(backend).asked
    assert (params.temperature, params.top_p, params.top_k, params.seed) == (0.5, 0.9, 7, 3)
    # Objects have the keys that their schema names, and no others.
    closed = {"additionalProperties": False, "required": ["good"]}
    assert json.loads(params.structured_outputs.json) == {**json.loads(schema), **closed}


REFUSED = [
    (Sampling(temperature=5), "temperature must be in"),
    (Sampling(seed=1 << 63), "64 bits"),
    (Sampling(schema='{"type": "nonsense"}'), "nonsense"),
    (Sampling(schema='{"$ref": "#/x"}'), "'/x' does not exist"),
    (Sampling(logprobs=2), "logprobs"),
    (Sampling(labels=("Yes", "No"), temperature=0.5), r"temperature is 0\.5 and labels"),
]


def test_settings_that_no_request_can_have_are_refused_before_the_first(backend: Any) -> None:
    for sampling, message in REFUSED:
        with pytest.raises(ConfigError, match=message):
            backend.check(sampling)
    assert not engine(backend).asked


def _oracle(text: str) -> dict[str, float]:
    """Log-probability of each label: at each place among the tokens that some label has there."""
    start = [1, *map(ord, f"Be brief.\n\n{text}\n\n")]
    whole = [[*map(ord, label), 0] for label in LABELS]
    found = {}
    for label, tokens in zip(LABELS, whole, strict=True):
        total = 0.0
        for at, token in enumerate(tokens):
            choices = sorted({each[at] for each in whole if each[:at] == tokens[:at]})
            logs = {one: logprob([*start, *tokens[:at]], one) for one in choices}
            total += logs[token] - log(sum(map(exp, logs.values())))
        found[label] = total
    return found


def test_scores_of_labels_are_those_of_a_dense_tree(backend: Any) -> None:
    texts = [f"question {number}" for number in range(12)]
    for text, answer in zip(texts, ask(backend, texts, SCORED), strict=True):
        assert answer.scores == pytest.approx(_oracle(text))
        assert answer.scores is not None
        assert sum(exp(score) for score in answer.scores.values()) == pytest.approx(1)


def test_a_label_takes_only_the_places_that_it_comes_to(backend: Any) -> None:
    texts = [f"question {number}" for number in range(30)]
    plain = ask(backend, texts, Sampling(labels=LABELS, max_tokens=1))
    few = len(engine(backend).asked)
    scored = ask(backend, texts, SCORED)
    assert [one.text for one in plain] == [one.text for one in scored]
    assert few < len(engine(backend).asked) - few
    assert {one.text for one in plain} > {"Yes"}


def test_closing_cancels_what_is_open(backend: Any) -> None:
    answers = backend.answer([prompt(f"row {number}") for number in range(9)], Sampling())
    next(answers)
    answers.close()
    assert not engine(backend).open
    assert len(engine(backend).aborted) == 8


def test_a_prompt_that_cannot_be_served_is_an_error_of_its_own(backend: Any) -> None:
    span = Span("apart", reuse=Reuse.INDEPENDENT)
    found = dict(backend.answer([prompt("x" * 600), (span,), prompt("fine")], Sampling()))
    assert "longer than the model" in (found[0].error or "")
    assert "independent spans" in (found[1].error or "")
    assert found[2].text == "FINE"


def test_what_vllm_does_not_know_is_refused() -> None:
    with pytest.raises(ConfigError, match="nonsense"):
        load("vllm:tiny", nonsense=1)
    with pytest.raises(ModelError, match="nowhere"):
        load("vllm:nowhere")


def test_without_vllm_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(MissingExtraError, match=r"relquery\[vllm\]"):
        load("vllm:tiny")
