"""Answers of the embedded engine tell log-probabilities where asked to, and are the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from relquery.backends.local.embedded import EmbeddedBackend
from relquery.backends.local.open import load_backend
from relquery.prompt import Answer, Compared, Finish, Reuse, Sampling, Span
from tests.schemas import STRUCT

MODEL = "random:layers=2,hidden=64,heads=2,context=256,seed=3"
ASKED: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": {"temperature": 1.2, "top_p": 0.9, "top_k": 50, "seed": 5},
    "stop strings": {"temperature": 1.0, "seed": 1, "max_tokens": 60, "stop": ("a", "e")},
    "labels": {"labels": ("Yes", "No", "Yes, but no", "Neither")},
    "labels drawn": {"labels": ("Yes", "No", "Yes, but no"), "temperature": 1.0, "seed": 2},
    "one label": {"labels": ("Yes",)},
    "schema": {"schema": STRUCT, "max_tokens": 200},
    "schema drawn": {"schema": STRUCT, "max_tokens": 200, "temperature": 1.3, "seed": 9},
    "schema cut": {"schema": STRUCT, "max_tokens": 13},
    "one token": {"max_tokens": 1},
}


@pytest.fixture(scope="module")
def backend() -> Iterator[EmbeddedBackend]:
    with closing(load_backend(MODEL, cache_tokens=2048)) as backend:
        yield backend


def ask(backend: EmbeddedBackend, sampling: Sampling, count: int = 4) -> list[Answer]:
    answers = dict(backend.answer([(Span(f"Row {n}."),) for n in range(count)], sampling))
    return [answers[index] for index in range(count)]


def check(answer: Answer, count: int) -> None:
    assert answer.logprobs is not None
    assert answer.tokens == tuple(told.token for told in answer.logprobs)
    assert len(answer.tokens) == answer.output_tokens
    for told in answer.logprobs:
        assert told.logprob <= 0
        assert len(told.top) == count


def told(answer: Answer) -> tuple[object, ...]:
    return answer.text, answer.finish, answer.tokens, answer.error


QUICK = ("sampled", "stop strings", "labels drawn", "schema cut", "one token")


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(each, id=name, marks=[pytest.mark.long] * (name not in QUICK))
        for name, each in ASKED.items()
    ],
)
def test_the_answer_is_as_without(backend: EmbeddedBackend, settings: dict[str, Any]) -> None:
    given = {"max_tokens": 8} | settings
    expected = ask(backend, Sampling(**given))
    assert {each.logprobs for each in expected} == {None}
    for count in 0, 20:
        found = ask(backend, Sampling(**given, logprobs=count))
        assert list(map(told, found)) == list(map(told, expected))
        for each in found:
            check(each, count)


def test_labels_have_them_in_place_of_scores(backend: EmbeddedBackend) -> None:
    labels = ("Yes", "No")
    (scored,) = ask(backend, Sampling(labels=labels), 1)
    (asked,) = ask(backend, Sampling(labels=labels, logprobs=2), 1)
    assert (scored.scores is None, asked.scores is None) == (False, True)


def test_a_compared_answer_has_one_for_each_token(backend: EmbeddedBackend) -> None:
    sampling = Sampling(max_tokens=8, logprobs=1)
    (decided,) = ask(backend, Compared.by(sampling, ("Yes", "No")), 1)
    assert decided.finish is Finish.DECIDED
    check(decided, 1)
    whole = ask(backend, sampling, 1)[0]
    assert whole.logprobs is not None
    (equal,) = ask(backend, Compared.by(sampling, (whole.text or "",)), 1)
    assert equal.text == whole.text
    check(equal, 1)


def test_states_of_spans_give_the_same_values(backend: EmbeddedBackend) -> None:
    """Whatever of a prompt comes from the cache, and at whatever place."""
    passages = [Span(f"{n} is a number. " * 4, reuse=Reuse.INDEPENDENT) for n in range(3)]
    sampling, prompt = Sampling(max_tokens=6, logprobs=3), [(*passages, Span("Which?"))]
    ((_, first),) = backend.answer(prompt, sampling)
    list(backend.answer([(*passages[::-1], Span("Which?"))], sampling))
    ((_, again),) = backend.answer(prompt, sampling)
    assert again.cached_tokens > first.cached_tokens
    assert first.logprobs is not None
    assert again.logprobs is not None
    for one, other in zip(first.logprobs, again.logprobs, strict=True):
        assert (one.token, [token for token, _ in one.top]) == (
            other.token,
            [token for token, _ in other.top],
        )
        assert one.logprob == pytest.approx(other.logprob, abs=1e-5)
